//! `prompts` and `resources.static`, and everything that can be wrong with them.

use mcp_a2a_gateway::config::PromptRole;

use super::desk::Desk;

const ONE: &str =
    "listeners: [{address: 127.0.0.1:8080}]\nagents: { bard: { card: http://bard/ } }\nprompts:\n";

fn report(prompt: &str) -> String {
    let desk = Desk::new().file("a.txt", "text").file("sound.wav", "RIFF");
    let report = desk.report(&format!("{ONE}  p: {prompt}\n"));
    report
        .lines()
        .map(|line| line.strip_prefix("gateway.yaml:4: prompts.p").unwrap_or(line))
        .collect::<Vec<_>>()
        .join("\n")
}

#[test]
fn prompts_are_read_in_order_of_names() {
    let text = "  z: { messages: [{ text: hi }] }\n  a: { title: A, messages: [{ role: assistant, resource: { uri: x, file: a.txt } }] }\n";
    let settings = Desk::new().file("a.txt", "text").settings(&format!("{ONE}{text}"));
    let names: Vec<_> = settings.prompts.iter().map(|prompt| prompt.name.as_str()).collect();
    assert_eq!(names, ["a", "z"]);
    let first = &settings.prompts[0];
    assert_eq!((first.title.as_deref(), first.messages[0].role), (Some("A"), PromptRole::Assistant));
}

#[test]
fn each_mistake_in_a_prompt_is_named() {
    for (prompt, expected) in [
        ("{}", ".messages: is missing (write `messages:` and below it `  - text: TEXT`)"),
        ("{ agent: none, messages: [{ text: x }] }", ".agent: there is no agent \"none\""),
        (
            "{ messages: [{ text: '{{x}}' }] }",
            ".messages[0]: names an argument \"x\" that the prompt does not have",
        ),
        ("{ messages: [{ role: user }] }", ".messages[0]: needs one of text, image, audio and resource"),
        (
            "{ messages: [{ text: x, image: a.png }] }",
            ".messages[0]: needs one of text, image, audio and resource",
        ),
        ("{ messages: [{ image: sound.wav }] }", ".messages[0].image: is audio/wav, not image/…"),
        (
            "{ messages: [{ resource: { uri: x } }] }",
            ".messages[0].resource: needs one of text, file and blob",
        ),
        (
            "{ messages: [{ resource: { uri: x, blob: '***' } }] }",
            ".messages[0].resource.blob: is not base64",
        ),
        (
            "{ arguments: [{ name: a }, { name: a }], messages: [{ text: x }] }",
            ".arguments: has the argument \"a\" twice",
        ),
        (
            "{ arguments: [{ name: 'a b' }], messages: [{ text: x }] }",
            ".arguments[0].name: is not the name of an argument (1 to 64 letters, digits, - _ and .)",
        ),
    ] {
        assert_eq!(report(prompt), expected, "{prompt}");
    }
}

#[test]
fn each_mistake_in_a_resource_is_named() {
    let mine = "listeners: [{address: 127.0.0.1:8080}]\nagents: { bard: { card: http://bard/ } }\nresources:\n  static:\n";
    for (resource, expected) in [
        ("{ text: x }", "[0].uri: is missing (write the URI of the resource)"),
        ("{ uri: 'docs://a' }", "[0]: needs one of text, file and blob"),
        ("{ uri: 'docs://a', text: x, blob: UA== }", "[0]: needs one of text, file and blob"),
        ("{ uri: docs, text: x }", "[0].uri: is not a URI of at most 2048 bytes (write SCHEME://PATH)"),
        ("{ uri: 'a2a://x', text: x }", "[0].uri: has the scheme a2a of the gateway's own resources"),
        (
            "{ uri: 'docs://{a}{b}', text: x }",
            "[0].uri: is not a URI or a template (write {NAME} for one segment of the path)",
        ),
        (
            "{ uri: 'docs://{a', text: x }",
            "[0].uri: is not a URI or a template (write {NAME} for one segment of the path)",
        ),
        ("{ uri: 'docs://{a}', text: '{{b}}' }", "[0]: names a variable \"b\" that its URI does not have"),
        ("{ uri: 'docs://a', text: x }, { uri: 'docs://a', text: y }", ": has the URI \"docs://a\" twice"),
    ] {
        let report = Desk::new().report(&format!("{mine}    [{resource}]\n"));
        let (_, problem) = report.split_once(": ").unwrap();
        assert_eq!(problem, format!("resources.static{expected}"), "{resource}");
    }
}
