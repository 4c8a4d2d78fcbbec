//! A2A clients: the A2A endpoint of the gateway, its bindings, versions, cards and webhooks.

mod a2a_bare;
mod a2a_cards;
mod a2a_grpc;
mod a2a_listing;
mod a2a_names;
mod a2a_owned;
mod a2a_passing;
mod a2a_push;
mod a2a_pushed;
mod a2a_rest;
mod a2a_spelling;
mod a2a_streams;
mod a2a_versions;
mod a2a_webhooks;
mod a2a_words;
mod finding_documents;
