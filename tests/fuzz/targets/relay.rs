//! Any message of a client or an agent becomes good JSON in every other version, and ids that stay
//! change no byte.

#![cfg_attr(feature = "libfuzzer", no_main)]

use std::borrow::Cow;
use std::convert::Infallible;

use mcp_a2a_gateway::a2a::Dialect;
use mcp_a2a_gateway::a2a::translate::{
    AgentResponse, ClientRequest, IdKind, Operation, ResponseTranslator, RpcError, splice_params,
    splice_result,
};
use serde_json::value::RawValue;
use serde_json::{Value, from_slice, from_str};

fuzz::program!(relayed);

const DIALECTS: [Dialect; 3] = [Dialect::V0_1, Dialect::V0_3, Dialect::V1];

/// The first byte says which operation it is; the first line is what the client says, and each
/// other what the agent says next.
fn relayed(bytes: &[u8]) {
    let Some((first, rest)) = bytes.split_first() else { return };
    let operation = Operation::ALL[usize::from(*first) % Operation::ALL.len()];
    let mut lines = rest.split(|byte| *byte == b'\n').take(32);
    let params = lines.next().unwrap_or_default();
    let answers: Vec<_> = lines.collect();
    for from in DIALECTS {
        spliced(params, &answers, from, operation);
        let Ok(params) = from_slice::<Box<RawValue>>(params) else { continue };
        let Ok(mut request) = ClientRequest::read(from, operation, Some(&params)) else { continue };
        for to in DIALECTS {
            let mut telling = ResponseTranslator::new(from, &request);
            good(&request.write(to, Some("tenant")));
            for answer in &answers {
                told(answer, to, operation, &mut telling);
            }
        }
        request.generate_missing_ids(Dialect::V0_1, || "made".to_owned());
        assert!(request.ids_mut(|_, id| if id.is_empty() { Err(()) } else { Ok(()) }).is_ok(), "an empty id");
    }
}

fn told(answer: &[u8], agent: Dialect, operation: Operation, telling: &mut ResponseTranslator) {
    match AgentResponse::read(agent, operation, answer) {
        Ok(answer) if operation.is_stream() => telling.events(answer).iter().for_each(|json| good(json)),
        Ok(answer) => telling.result(answer).iter().for_each(|json| good(json)),
        Err(error) => DIALECTS.into_iter().for_each(|to| {
            RpcError::of(&error, to);
        }),
    }
}

fn spliced(params: &[u8], answers: &[&[u8]], dialect: Dialect, operation: Operation) {
    let stays = |_: IdKind, _: &str| Ok::<_, Infallible>(None);
    let longer = |_: IdKind, id: &str| Ok::<_, Infallible>(Some(format!("\"{id}")));
    for json in answers.iter().copied().chain([params]).filter_map(|json| str::from_utf8(json).ok()) {
        if let Ok(same) = splice_params(json, dialect, operation, stays) {
            assert!(matches!(same, Cow::Borrowed(same) if same == json), "changed for nothing");
        }
        for changed in [
            splice_params(json, dialect, operation, longer).ok(),
            splice_result(json, dialect, operation, longer).ok(),
        ] {
            assert!(changed.is_none_or(|changed| from_str::<&RawValue>(&changed).is_ok()), "broken JSON");
        }
    }
}

/// Numbers that no parser holds are passed on as they came.
fn good(json: &[u8]) {
    let value: Result<Value, _> = from_slice(json);
    let held = value.map_or_else(|error| error.to_string().contains("out of range"), |_| true);
    assert!(held, "{}", String::from_utf8_lossy(json));
}
