//! Replacing ids in what passes between a client and an agent of one version: all of them, and
//! nothing else.

use std::borrow::Cow;
use std::convert::Infallible;

use mcp_a2a_gateway::a2a::Dialect::{self, V0_1, V0_3, V1};
use mcp_a2a_gateway::a2a::translate::{IdKind, Operation, RewriteError, splice_params, splice_result};
use proptest::prelude::*;
use serde_json::{Value, json};

/// Marks an id by its kind.
fn marked(kind: IdKind, id: &str) -> Result<Option<String>, Infallible> {
    Ok(Some(format!("{kind:?}\"{id}")))
}

/// `json` with the ids marked `<T:…>`, `<R:…>` and `<C:…>`, marked as the walk should do it.
fn expected(json: &str) -> (String, String) {
    let (mut plain, mut marks) = (json.to_owned(), json.to_owned());
    for (mark, kind) in [("<T:", "Task"), ("<R:", "Reference"), ("<C:", "Context")] {
        plain = plain.replace(mark, "");
        marks = marks.replace(mark, &format!("{kind}\\\""));
    }
    (plain.replace('>', ""), marks.replace('>', ""))
}

const SAID: &str = r#"{"message" : {"taskId":"<T:t>","contextId":"<C:c>", "referenceTaskIds":["<R:r1>","<R:r2>"],
    "parts":[{"data":{"taskId":"x","id":"x"}, "metadata":{"taskId":"x"}}],"metadata":{"contextId":"x","taskId":"x"},"messageId":"m","id":"x"},
    "metadata":{"message":{"taskId":"x"}},"id":"x","configuration":{"historyLength":0}}"#;
const TOLD: &str = r#"{"id":"<T:t>","contextId":"<C:c>","kind":"task","status":{"state":"working","message":{"taskId":"<T:t>","contextId":"<C:c>","parts":[{"text":"id"}],"metadata":{"taskId":"x"}}},
    "history":[{"taskId":"<T:t>","referenceTaskIds":["<R:r>"]},{"contextId":"<C:c>"},7],"artifacts":[{"artifactId":"x","id":"x","taskId":"x","parts":[{"data":{"id":"x"}}]}],"metadata":{"id":"x"}}"#;

#[test]
fn only_ids_of_parameters_are_replaced() {
    use Operation::{Cancel, DeletePush, Get, GetPush, List, ListPush, Send, SetPush, Stream, Subscribe};
    for (dialects, operations, json) in [
        (&[V0_3, V1][..], &[Send, Stream][..], SAID),
        (
            &[V1],
            &[Send],
            r#"{"message":{"task_id":"<T:t>","context_id":"<C:c>","reference_task_ids":["<R:r>"]}}"#,
        ),
        (
            &[V1],
            &[Stream],
            r#"{"configuration":{"taskPushNotificationConfig":{"taskId":"<T:t>","id":"x","url":"u"}}}"#,
        ),
        (
            &[V0_3, V1],
            &[Send],
            r#"{"message":{"taskId":"<T:a>","taskId":"<T:b>","ta\u0073kId":"<T:c>"},"message":{"taskId":"<T:d>"}}"#,
        ),
        (
            &[V0_3, V1],
            &[Get, Cancel, Subscribe],
            r#"{"id":"<T:t>","historyLength":1,"metadata":{"id":"x"},"tenant":"x"}"#,
        ),
        (&[V0_3], &[GetPush, ListPush, DeletePush], r#"{"id":"<T:t>","pushNotificationConfigId":"x"}"#),
        (&[V1], &[GetPush, ListPush, DeletePush], r#"{"taskId":"<T:t>","id":"x"}"#),
        (
            &[V0_3],
            &[SetPush],
            r#"{"taskId":"<T:t>","pushNotificationConfig":{"id":"x","url":"u","token":"x"}}"#,
        ),
        (&[V1], &[SetPush], r#"{"task_id":"<T:t>","id":"x","url":"u"}"#),
        (&[V1], &[List], r#"{"contextId":"<C:c>","pageToken":"x"}"#),
        (&[V0_3, V1], &[Get], r#"{"id":"","id":null,"id":"<T:t\/\u00e9>"}"#),
        (
            &[V0_1],
            &[Send, Stream],
            r#"{"id":"<T:t>","sessionId":"<C:s>","message":{"taskId":"x","parts":[]}}"#,
        ),
        (
            &[V0_1],
            &[Get, Cancel, Subscribe, SetPush, GetPush],
            r#"{"id":"<T:t>","pushNotificationConfig":{"id":"x"}}"#,
        ),
        (&[V0_3, V1], &[Send], r#"[{"message":{"taskId":"x"}}]"#),
    ] {
        let (given, wanted) = expected(json);
        for (dialect, operation) in dialects.iter().flat_map(|d| operations.iter().map(move |o| (*d, *o))) {
            let found = splice_params(&given, dialect, operation, marked).unwrap();
            assert_eq!(unescaped(&found), unescaped(&wanted), "{dialect:?} {operation:?}");
        }
    }
}

/// The ids are written anew, so that one with needless escapes loses them.
fn unescaped(json: &str) -> String {
    json.replace(r"\/", "/").replace(r"\u00e9", "é")
}

#[test]
fn only_ids_of_results_are_replaced() {
    use Operation::{
        Cancel, DeletePush, ExtendedCard, Get, GetPush, List, ListPush, Send, SetPush, Stream, Subscribe,
    };
    let wrapped = format!(r#"{{"task":{TOLD}}}"#);
    let listed = format!(r#"{{"tasks":[{TOLD},{TOLD}],"nextPageToken":"x"}}"#);
    for (dialects, operations, json) in [
        (&[V0_3, V1][..], &[Send, Stream, Get, Cancel, Subscribe][..], TOLD),
        (&[V0_3, V1][..], &[Send, Stream], wrapped.as_str()),
        (&[V0_3, V1][..], &[List], listed.as_str()),
        (
            &[V0_3, V1],
            &[Send, Stream],
            r#"{"message":{"messageId":"x","taskId":"<T:t>","contextId":"<C:c>","parts":[{"data":{"taskId":"x"}}]}}"#,
        ),
        (
            &[V0_3, V1][..],
            &[Send, Stream],
            r#"{"kind":"message","messageId":"x","taskId":"<T:t>","contextId":"<C:c>"}"#,
        ),
        (
            &[V0_3, V1],
            &[Stream, Subscribe],
            r#"{"statusUpdate":{"taskId":"<T:t>","contextId":"<C:c>","status":{"state":"s","message":{"taskId":"<T:t>"}}}}"#,
        ),
        (
            &[V0_3, V1],
            &[Stream, Subscribe],
            r#"{"artifactUpdate":{"taskId":"<T:t>","contextId":"<C:c>","artifact":{"artifactId":"x","taskId":"x"}}}"#,
        ),
        (
            &[V0_3, V1],
            &[Stream, Subscribe],
            r#"{"kind":"artifact-update","taskId":"<T:t>","contextId":"<C:c>","artifact":{"parts":[{"data":{"taskId":"x"}}]},"append":true}"#,
        ),
        (&[V0_3, V1][..], &[SetPush, GetPush], r#"{"taskId":"<T:t>","pushNotificationConfig":{"id":"x"}}"#),
        (
            &[V0_3, V1],
            &[ListPush],
            r#"[{"taskId":"<T:t>","pushNotificationConfig":{"id":"x"}},{"taskId":"<T:u>"}]"#,
        ),
        (&[V0_3, V1], &[ListPush], r#"{"configs":[{"taskId":"<T:t>","id":"x"}],"nextPageToken":""}"#),
        (&[V0_3, V1][..], &[DeletePush, ExtendedCard], r#"{"id":"x","taskId":"x"}"#),
        (&[V0_3, V1][..], &[Get], r#"{"id":7,"contextId":null,"status":"x","history":{"taskId":"x"}}"#),
        (&[V0_3, V1], &[Get], "null"),
        (
            &[V0_1],
            &[Send, Get, Cancel],
            r#"{"id":"<T:t>","sessionId":"<C:s>","status":{"state":"working"},"artifacts":[{"index":0}]}"#,
        ),
        (&[V0_1], &[Stream], r#"{"id":"<T:t>","artifact":{"index":0,"parts":[]}}"#),
        (&[V0_1], &[SetPush, GetPush], r#"{"id":"<T:t>","pushNotificationConfig":{"id":"x","url":"u"}}"#),
    ] {
        let (given, wanted) = expected(json);
        for (dialect, operation) in dialects.iter().flat_map(|d| operations.iter().map(move |o| (*d, *o))) {
            let found = splice_result(&given, dialect, operation, marked).unwrap();
            assert_eq!(found, wanted, "{dialect:?} {operation:?}");
        }
    }
}

#[test]
fn unknown_or_non_text_id_is_refused() {
    let nobody = |kind, _: &str| Err::<Option<String>, _>(kind);
    for (json, refused) in [
        (r#"{"id":"t"}"#, RewriteError::Refused(IdKind::Task)),
        (r#"{"id":7}"#, RewriteError::NotText(IdKind::Task)),
        (r#"{"id":["t"]}"#, RewriteError::NotText(IdKind::Task)),
        (r#"{"id":"\ud800"}"#, RewriteError::NotText(IdKind::Task)),
        (r#"{"id":null,"#, RewriteError::NotJson),
        (r#"{"id":null} x"#, RewriteError::NotJson),
        ("", RewriteError::NotJson),
    ] {
        assert_eq!(splice_params(json, V1, Operation::Get, nobody), Err(refused), "{json}");
    }
    let deep = format!(r#"{{"metadata":{}{}}}"#, "[".repeat(200), "]".repeat(200));
    assert_eq!(splice_params(&deep, V1, Operation::Get, marked), Err(RewriteError::NotJson));
}

/// JSON with members that mean something in A2A.
fn any_json() -> impl Strategy<Value = Value> {
    const KNOWN: &[&str] = &[
        "id",
        "taskId",
        "contextId",
        "referenceTaskIds",
        "status",
        "message",
        "history",
        "task",
        "statusUpdate",
        "artifactUpdate",
        "tasks",
        "configs",
        "configuration",
        "metadata",
        "parts",
        "data",
        "task_id",
    ];
    let leaf = prop_oneof![
        Just(json!(null)),
        any::<i64>().prop_map(Value::from),
        "[a-z\"é]{0,6}".prop_map(Value::from)
    ];
    leaf.prop_recursive(5, 40, 5, |inner| {
        let member = prop::sample::select(KNOWN).prop_map(str::to_owned);
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::vec((member, inner), 0..6).prop_map(|members| members.into_iter().collect()),
        ]
    })
}

fn operation() -> impl Strategy<Value = Operation> {
    prop::sample::select(Operation::ALL.to_vec())
}

fn dialect() -> impl Strategy<Value = Dialect> {
    prop::sample::select(vec![V0_1, V0_3, V1])
}

proptest! {
    #[test]
    fn unchanged_text_is_not_copied(json in any_json(), operation in operation(), dialect in dialect()) {
        let text = format!(" {json:#} ");
        let stays = |_, _: &str| Ok::<_, Infallible>(None);
        prop_assert!(matches!(splice_result(&text, dialect, operation, stays), Ok(Cow::Borrowed(same)) if same == text));
        if let Ok(found) = splice_params(&text, dialect, operation, stays) {
            prop_assert!(matches!(found, Cow::Borrowed(same) if same == text));
        }
    }

    #[test]
    fn replacement_can_be_reversed(json in any_json(), operation in operation(), dialect in dialect()) {
        let text = json.to_string();
        let mut there = 0;
        let out = |_, id: &str| { there += 1; Ok::<_, Infallible>(Some(format!("<{id}>"))) };
        let away = splice_result(&text, dialect, operation, out).unwrap().into_owned();
        let mut back = 0;
        let home = |_, id: &str| { back += 1; Ok::<_, Infallible>(Some(id.trim_matches(['<', '>']).to_owned())) };
        prop_assert_eq!(splice_result(&away, dialect, operation, home).unwrap().into_owned(), text.as_str());
        prop_assert_eq!(there, back);
        if let Ok(away) = splice_params(&text, dialect, operation, |_, id| Ok::<_, Infallible>(Some(format!("<{id}>")))) {
            let home = |_, id: &str| Ok::<_, Infallible>(Some(id.trim_matches(['<', '>']).to_owned()));
            prop_assert_eq!(splice_params(&away, dialect, operation, home).unwrap().into_owned(), text.as_str());
        }
    }

    #[test]
    fn no_text_panics(text in "[ -~\\[\\]{}\":,]{0,60}", operation in operation(), dialect in dialect()) {
        let _read = splice_params(&text, dialect, operation, marked).is_ok();
        let _read = splice_result(&text, dialect, operation, marked).is_ok();
    }
}
