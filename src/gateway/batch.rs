//! JSON-RPC batches, for 2025-03-26 only.
//!
//! The requests of a batch run one after the other within one budget. The response is JSON, without
//! notifications.

use std::time::{Duration, Instant};

use http::StatusCode;
use pingora::proxy::Session;

use super::access_record::AccessRecord;
use super::endpoint_limits::EndpointLimits;
use super::post::{ClassifiedMessage, ErrorReply};
use super::responder::ResponseTarget;
use super::response::{ClientGone, empty, json, refused};
use super::route::Route;
use super::{ClientContext, Inner};
use crate::fault::Fault;
use crate::jsonrpc::{Id, elements, write_error};
use crate::mcp::classify::era_of_headers;
use crate::mcp::headers::McpHeaders;
use crate::mcp::{ClientParams, Era, Method, Version};

impl Inner {
    /// Answers a batch.
    pub(super) async fn batch(
        &self,
        http: &mut Session,
        exchange: &mut AccessRecord,
        door: Route<'_>,
        text: &str,
    ) -> Result<(), ClientGone> {
        let placed = self.place_all(http, exchange, text);
        let placed = placed.and_then(|placed| Ok((self.budget_of_batch(http, &placed)?, placed)));
        let (budget, placed) = match placed {
            Ok(placed) => placed,
            Err(fault) => {
                let era = era_of_headers(&McpHeaders::read(&http.req_header().headers));
                return self.refuse(http, exchange, ErrorReply { fault, era, id: None }).await;
            }
        };
        let mut answers = BatchAnswers::default();
        let mut lacks: Vec<Fault> = Vec::new();
        // One budget for the batch: the client waits for all responses.
        let until = Instant::now() + budget;
        for message in placed {
            let (asker, method, id, params) = match message {
                Ok(ClassifiedMessage::Request(asker, method, id, params)) => (asker, method, id, params),
                Ok(ClassifiedMessage::Accepted) => continue,
                Ok(ClassifiedMessage::Response(asker, id, result)) => {
                    Box::pin(self.accept_elicitation_response(&asker, &id, result)).await;
                    continue;
                }
                Err((fault, id)) => {
                    answers.push(&refusal(&fault, &id));
                    continue;
                }
            };
            let request = (method, &id, &params.unwrap_or_default());
            match self.one_of_batch((http, until), door, (&asker, exchange), request).await {
                Ok(Some(body)) => {
                    exchange.keep(body.len());
                    answers.push(&body);
                }
                Ok(None) => {}
                Err(Ok(fault)) => {
                    answers.push(&refusal(&fault, &id));
                    lacks.extend(Some(fault).filter(|fault| matches!(fault, Fault::InsufficientScope(_))));
                }
                Err(Err(gone)) => return Err(gone),
            }
        }
        if answers.count == 0 {
            return empty(http, StatusCode::ACCEPTED, Vec::new()).await;
        }
        let BatchAnswers { count, mut body } = answers;
        body.push(b']');
        match lacks.first() {
            // No request is served: the HTTP response can say what is missing, and clients look
            // only there.
            Some(lack) if lacks.len() == count => {
                exchange.record_rejection(lack, &self.metrics);
                refused(http, lack, Era::Legacy, body).await
            }
            _ => json(http, StatusCode::OK, body, None).await,
        }
    }

    /// Returns the budget of the client of a batch; all requests of a batch have one client.
    fn budget_of_batch(&self, http: &Session, placed: &[BatchItem<'_>]) -> Result<Duration, Fault> {
        let mut of_client = placed.iter().filter_map(|one| match one {
            Ok(ClassifiedMessage::Request(asker, ..)) => Some(asker.limits),
            Ok(ClassifiedMessage::Response(..) | ClassifiedMessage::Accepted) | Err(_) => None,
        });
        let limits = EndpointLimits::read(http.req_header().uri.query())?;
        Ok(limits.or(of_client.next().unwrap_or_default()).budget(self.settings.calls.budget))
    }

    /// Handles one request of a batch within the rest of the budget.
    async fn one_of_batch(
        &self,
        (http, until): (&mut Session, Instant),
        door: Route<'_>,
        (asker, exchange): (&ClientContext, &mut AccessRecord),
        (method, id, params): (Method, &Id, &ClientParams<'_>),
    ) -> Result<Option<Vec<u8>>, Result<Fault, ClientGone>> {
        self.authorize_method(asker, door, method).map_err(Ok)?;
        if method == Method::ToolsCall {
            let to = (ResponseTarget::Batch(http), until.saturating_duration_since(Instant::now()));
            return Box::pin(self.call(to, door, (asker, exchange), (id, params))).await;
        }
        let body = self.handle(door, asker, method, id, params).await.map_err(Ok)?.body;
        self.answer_with(ResponseTarget::Batch(http), (asker, exchange), body).await
    }

    fn place_all<'a>(
        &self,
        http: &Session,
        exchange: &mut AccessRecord,
        text: &'a str,
    ) -> Result<Vec<BatchItem<'a>>, Fault> {
        let headers = McpHeaders::read(&http.req_header().headers);
        let bad = |what: String| Fault::InvalidRequest(what);
        let all = elements(text, self.settings.limits.batch).map_err(|grammar| match grammar {
            crate::jsonrpc::ParseError::NotJson(what) => Fault::ParseError(what),
            other => bad(other.to_string()),
        })?;
        let mut placed = Vec::with_capacity(all.len());
        for element in all {
            let one = match self.classify(&headers, element.get(), exchange).map_err(|refused| *refused) {
                Ok(one) => Ok(one),
                Err(ErrorReply { fault: Fault::SessionNotFound, .. }) => return Err(Fault::SessionNotFound),
                Err(ErrorReply { fault, id: Some(id), era: Era::Legacy }) if is_request_fault(&fault) => {
                    Err((fault, id))
                }
                Err(ErrorReply { fault: Fault::InvalidRequest(what), .. }) => {
                    return Err(bad(format!("in a batch: {what}")));
                }
                Err(ErrorReply { fault, .. }) => return Err(bad(format!("in a batch: {fault}"))),
            };
            if let Ok(ClassifiedMessage::Request(asker, method, ..)) = &one {
                check(asker.version, *method).map_err(|what| bad(what.into()))?;
            }
            placed.push(one);
        }
        Ok(placed)
    }
}

/// Encoded responses so far.
#[derive(Default)]
struct BatchAnswers {
    count: usize,
    body: Vec<u8>,
}

impl BatchAnswers {
    fn push(&mut self, answer: &[u8]) {
        self.body.push(if self.count == 0 { b'[' } else { b',' });
        self.body.extend_from_slice(answer);
        self.count += 1;
    }
}

/// One message of a batch, or the fault with which it is rejected.
type BatchItem<'a> = Result<ClassifiedMessage<'a>, (Fault, Id)>;

/// Returns true if a fault rejects one request and leaves the rest of the batch alone.
fn is_request_fault(fault: &Fault) -> bool {
    matches!(fault, Fault::UnknownMethod(_) | Fault::InvalidParams(_))
}

fn check(version: Version, method: Method) -> Result<(), &'static str> {
    match () {
        () if version.era() == Era::Modern => Err("a modern client sends no batches"),
        () if !version.has_batches() => Err("this session's protocol version has no batches"),
        () if method == Method::Initialize => Err("initialize must not be in a batch"),
        () => Ok(()),
    }
}

fn refusal(fault: &Fault, id: &Id) -> Vec<u8> {
    let data = fault.data();
    write_error(Some(id), fault.on_wire(Era::Legacy).code, &fault.to_string(), data.as_deref())
}
