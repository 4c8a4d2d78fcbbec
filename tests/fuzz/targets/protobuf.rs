//! Any message of a client or an agent over gRPC is converted to JSON or refused, and converted back and again it
//! remains the same.

#![cfg_attr(feature = "libfuzzer", no_main)]

use mcp_a2a_gateway::a2a::Dialect;
use mcp_a2a_gateway::a2a::grpc::{
    GrpcStatus, ProtobufError, request_to_json, request_to_protobuf, response_to_json, response_to_protobuf,
};
use mcp_a2a_gateway::a2a::translate::Operation;

fuzz::program!(converted);

type Convert = fn(Operation, Dialect, &[u8]) -> Result<Vec<u8>, ProtobufError>;

/// The first byte chooses the version, the side and the operation.
fn converted(bytes: &[u8]) {
    let Some((choice, message)) = bytes.split_first() else { return };
    let dialect = if choice & 1 == 0 { Dialect::V1 } else { Dialect::V0_3 };
    let operation = Operation::ALL[usize::from(choice >> 2) % Operation::ALL.len()];
    let (to_json, to_protobuf): (Convert, Convert) = match choice & 2 {
        0 => (request_to_json, request_to_protobuf),
        _ => (response_to_json, response_to_protobuf),
    };
    if let Ok(json) = to_json(operation, dialect, message) {
        assert!(json.len() <= 512 + 16 * message.len(), "{} bytes of {}", json.len(), message.len());
        let protobuf = to_protobuf(operation, dialect, &json).expect("JSON of a message is a message");
        let again = to_json(operation, dialect, &protobuf).expect("a message that was written is read");
        assert_eq!(json, again, "it changes");
    }
    if let Ok(protobuf) = to_protobuf(operation, dialect, message) {
        to_json(operation, dialect, &protobuf).expect("a message that was written is read");
    }
    let base64 = String::from_utf8_lossy(message);
    let status = GrpcStatus::default().with_details(&base64);
    assert_eq!(GrpcStatus::default().with_details(&status.details().unwrap_or_default()).info, status.info);
}
