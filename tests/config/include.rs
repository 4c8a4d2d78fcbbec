//! `include`: one configuration of several files.

use super::desk::Desk;

const MAIN: &str = "include: ['conf.d/*.yaml']\nlisteners: [{address: 127.0.0.1:8080}]\n";

/// A desk with the folder of included files.
fn desk() -> Desk {
    let desk = Desk::new();
    std::fs::create_dir(desk.path("conf.d")).unwrap();
    desk
}

#[test]
fn files_join_to_one_configuration() {
    let desk = desk()
        .file("conf.d/b.yaml", "agents: { b: { card: 'http://b/' } }\nrules: [{ callers: [bob] }]\nlimits: { depth: 20 }\n")
        .file("conf.d/a.yaml", "x-a: &url 'http://a/'\nagents: { a: { card: *url } }\nrules: [{ callers: [ann] }]\n")
        .file("conf.d/empty.yaml", "# nothing yet\n")
        .file("conf.d/.hidden.yaml", "zebra: 1\n")
        .file("conf.d/note.txt", "no configuration")
        .file("gateway.yaml", format!("{MAIN}agents: {{ c: {{ card: 'http://c/' }} }}\nrules: [{{ callers: [cat] }}]\nlimits: {{ batch: 7 }}\n"));
    let settings = desk.load("gateway.yaml").unwrap();
    let names: Vec<_> = settings.agents.iter().map(|agent| agent.name.as_str()).collect();
    assert_eq!(names, ["a", "b", "c"]);
    assert_eq!((settings.limits.depth, settings.limits.batch), (20, 7));
    let callers: Vec<_> = settings.rules.iter().map(|rule| rule.callers.clone().unwrap().concat()).collect();
    assert_eq!(callers, ["cat", "ann", "bob"]);
    let files = ["gateway.yaml", "conf.d", "conf.d/a.yaml", "conf.d/b.yaml", "conf.d/empty.yaml"];
    assert_eq!(settings.files, files.map(|name| desk.path(name)));
}

/// Every problem names its file and the line there.
#[test]
fn problems_name_file_and_line() {
    let report = desk()
        .file("conf.d/a.yaml", "agents:\n  a:\n    card: 'http://a/'\n    rate: lots\n  c:\n    card: 'http://a/'\n")
        .file("conf.d/b.yaml", "\nagents:\n  a:\n    card: 'http://a/'\n    endpoints: ['http://a/', 'http://a/']\nthreads: 7\n")
        .file("conf.d/c.yaml", "include: [x.yaml]\nagents:\n  d:\n    endpoints: [http://a/]\n    card: 'http://a/'\n    rate: 1\n    rate: 2\n")
        .file("conf.d/d.yaml", "agents: [\n")
        .file("conf.d/e.yaml", "listeners: 1\n")
        .report(&format!("{MAIN}agents:\n  c:\n    card: 'http://c/'\n    rate: many\nthreads: 3\n"));
    let expected = [
        "gateway.yaml:6: agents.c.rate: expected a whole number, found a text",
        "conf.d/a.yaml:4: agents.a.rate: expected a whole number, found a text",
        "conf.d/a.yaml:5: agents.c: is written twice (first on line 4 of the including file)",
        "conf.d/b.yaml:3: agents.a: is written twice (first on line 2 of conf.d/a.yaml)",
        "conf.d/b.yaml:6: threads: is written twice (first on line 7 of the including file)",
        "conf.d/c.yaml:1: include: an included file cannot include others (write it in the including file)",
        "conf.d/c.yaml:7: agents.d.rate: is written twice (first on line 6)",
        "conf.d/d.yaml:1: cannot be read as YAML: ",
        "conf.d/e.yaml:1: listeners: is written twice (first on line 2 of the including file)",
    ];
    let lines: Vec<_> = report.lines().collect();
    assert_eq!(lines.len(), expected.len(), "{report}");
    for (line, expected) in lines.iter().zip(expected) {
        assert!(line.starts_with(expected), "{line}\n{expected}");
    }
}

/// Lines within problems are those of the included file too.
#[test]
fn repeated_endpoint_names_its_first_line() {
    let agent =
        "agents:\n  a:\n    card: 'http://a/'\n    endpoints:\n      - http://a/x\n      - http://A:80/x\n";
    let report = desk().file("conf.d/a.yaml", agent).report(MAIN);
    assert_eq!(report, "conf.d/a.yaml:6: agents.a.endpoints[1]: is written twice (first on line 5)");
}

#[test]
fn globs_are_strict_and_bounded() {
    let listeners = "listeners: [{address: 127.0.0.1:8080}]\nagents: { a: { card: 'http://a/' } }\n";
    for (include, expected) in [
        (
            "[gone.yaml]",
            "gone.yaml: cannot read it: No such file or directory (os error 2) (include on line 1)",
        ),
        (
            "[gone/*.yaml]",
            "gateway.yaml:1: include[0]: cannot read gone: No such file or directory (os error 2)",
        ),
        ("['conf.d/**']", "gateway.yaml:1: include[0]: ** is no glob here (write one * for each folder)"),
        (
            "['conf.d/*']",
            "gateway.yaml:1: include[0]: fits conf.d/a.txt, which is not a .yaml, .yml or .json file",
        ),
        ("[conf.d/a.txt]", "conf.d/a.txt: is not a .yaml, .yml or .json file (include on line 1)"),
        ("[7]", "gateway.yaml:1: include[0]: expected a text (the path of a file, in which * is any text)"),
        ("conf.d", "gateway.yaml:1: include: expected a list of files (begin each with `- `)"),
    ] {
        let desk = desk().file("conf.d/a.txt", "");
        assert_eq!(desk.report(&format!("include: {include}\n{listeners}")), expected, "{include}");
    }
    // A glob may fit nothing, and the including file itself.
    let settings =
        desk().settings(&format!("include: ['conf.d/*.yaml', '*.yaml', 'gateway.yaml']\n{listeners}"));
    assert_eq!(settings.agents.len(), 1);
    let desk = desk();
    for number in 0..17 {
        let text = format!("x-{number}: '{}'\n", "a".repeat((1 << 20) - 64));
        std::fs::write(desk.path(&format!("conf.d/{number}.yaml")), text).unwrap();
    }
    let report = desk.report(&format!("{MAIN}agents: {{ a: {{ card: 'http://a/' }} }}\n"));
    assert_eq!(report, "gateway.yaml:1: include[0]: the files have more than 16 MiB in all");
}
