//! The closed sets of metric labels.
//!
//! A peer's text never becomes a label: an unknown method is `other`.

/// Declares a label set: an enum, the list of all its variants, and the text of each on the wire.
macro_rules! labels {
    ($(#[$about:meta])* $set:ident { $($(#[$doc:meta])* $variant:ident = $text:literal,)+ }) => {
        $(#[$about])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub(crate) enum $set { $($(#[$doc])* $variant,)+ }

        impl $set {
            /// All of them, in the order of their declaration.
            #[allow(dead_code, reason = "only some sets are resolved before they are counted")]
            pub(crate) const ALL: [Self; [$(Self::$variant),+].len()] = [$(Self::$variant),+];

            /// Their comments, in the same order; for the reference of the metrics.
            #[cfg(test)]
            pub(crate) const COMMENTS: [&str; Self::ALL.len()] = [$(concat!($(stringify!($doc)),+)),+];

            /// Returns the text of the label.
            #[must_use]
            pub(crate) const fn label(self) -> &'static str {
                match self { $(Self::$variant => $text,)+ }
            }
        }
    };
}

labels! {
    /// The outcome of a span.
    SpanOutcome {
        /// The collector has it.
        Exported = "exported",
        /// The collector could not be reached, or refused it.
        Failed = "failed",
        /// It found no place in the queue.
        Dropped = "dropped",
    }
}

labels! {
    /// The method of a request.
    Method {
        /// MCP `initialize`.
        Initialize = "initialize",
        /// MCP `notifications/initialized`.
        Initialized = "notifications/initialized",
        /// MCP `notifications/cancelled`.
        Cancelled = "notifications/cancelled",
        /// MCP `ping`.
        Ping = "ping",
        /// MCP `server/discover`.
        Discover = "server/discover",
        /// MCP `tools/list`.
        ToolsList = "tools/list",
        /// MCP `tools/call`.
        ToolsCall = "tools/call",
        /// MCP `resources/list`.
        ResourcesList = "resources/list",
        /// MCP `resources/templates/list`.
        ResourceTemplatesList = "resources/templates/list",
        /// MCP `resources/read`.
        ResourcesRead = "resources/read",
        /// MCP `resources/subscribe`.
        ResourcesSubscribe = "resources/subscribe",
        /// MCP `resources/unsubscribe`.
        ResourcesUnsubscribe = "resources/unsubscribe",
        /// MCP `subscriptions/listen`.
        SubscriptionsListen = "subscriptions/listen",
        /// MCP `prompts/list`.
        PromptsList = "prompts/list",
        /// MCP `prompts/get`.
        PromptsGet = "prompts/get",
        /// MCP `completion/complete`.
        Complete = "completion/complete",
        /// MCP `logging/setLevel`.
        SetLevel = "logging/setLevel",
        /// MCP `tasks/get`.
        TasksGet = "tasks/get",
        /// MCP `tasks/result`.
        TasksResult = "tasks/result",
        /// MCP `tasks/list`.
        TasksList = "tasks/list",
        /// MCP `tasks/cancel`.
        TasksCancel = "tasks/cancel",
        /// MCP `tasks/update`.
        TasksUpdate = "tasks/update",
        /// A client's response to a request of the gateway.
        Response = "response",
        /// `GET` of an MCP endpoint: the stream of a session.
        SessionStream = "session_stream",
        /// `DELETE` of an MCP endpoint.
        SessionEnd = "session_end",
        /// A2A `SendMessage`, and its names before 1.0; so with all that follow.
        SendMessage = "SendMessage",
        /// A2A `SendStreamingMessage`.
        SendStreamingMessage = "SendStreamingMessage",
        /// A2A `GetTask`.
        GetTask = "GetTask",
        /// A2A `ListTasks`.
        ListTasks = "ListTasks",
        /// A2A `CancelTask`.
        CancelTask = "CancelTask",
        /// A2A `SubscribeToTask`.
        SubscribeToTask = "SubscribeToTask",
        /// A2A `CreateTaskPushNotificationConfig`.
        CreatePushConfig = "CreateTaskPushNotificationConfig",
        /// A2A `GetTaskPushNotificationConfig`.
        GetPushConfig = "GetTaskPushNotificationConfig",
        /// A2A `ListTaskPushNotificationConfigs`.
        ListPushConfigs = "ListTaskPushNotificationConfigs",
        /// A2A `DeleteTaskPushNotificationConfig`.
        DeletePushConfig = "DeleteTaskPushNotificationConfig",
        /// A2A `GetExtendedAgentCard`.
        GetExtendedAgentCard = "GetExtendedAgentCard",
        /// Another method, of an extension of A2A.
        A2a = "a2a",
        /// The list of agents of the A2A server.
        AgentList = "agent_list",
        /// The API catalog.
        ApiCatalog = "api_catalog",
        /// An agent's card of the A2A server.
        AgentCard = "agent_card",
        /// A push notification of an agent.
        Push = "push",
        /// Anything else.
        Other = "other",
    }
}

impl Method {
    /// Returns the label of an MCP method as a client wrote it.
    #[must_use]
    pub(crate) fn of(method: &str) -> Self {
        match method {
            "initialize" => Self::Initialize,
            "notifications/initialized" => Self::Initialized,
            "notifications/cancelled" => Self::Cancelled,
            "ping" => Self::Ping,
            "server/discover" => Self::Discover,
            "tools/list" => Self::ToolsList,
            "tools/call" => Self::ToolsCall,
            "resources/list" => Self::ResourcesList,
            "resources/templates/list" => Self::ResourceTemplatesList,
            "resources/read" => Self::ResourcesRead,
            "resources/subscribe" => Self::ResourcesSubscribe,
            "resources/unsubscribe" => Self::ResourcesUnsubscribe,
            "subscriptions/listen" => Self::SubscriptionsListen,
            "prompts/list" => Self::PromptsList,
            "prompts/get" => Self::PromptsGet,
            "completion/complete" => Self::Complete,
            "logging/setLevel" => Self::SetLevel,
            "tasks/get" => Self::TasksGet,
            "tasks/result" => Self::TasksResult,
            "tasks/list" => Self::TasksList,
            "tasks/cancel" => Self::TasksCancel,
            "tasks/update" => Self::TasksUpdate,
            _ => Self::Other,
        }
    }
}

labels! {
    /// The outcome of a request.
    Outcome {
        /// With the requested result.
        Ok = "ok",
        /// With a handle: the work continues at the agent.
        Continues = "continues",
        /// With a question to the client.
        InputRequired = "input_required",
        /// Rejected: not allowed, too much, too many.
        Refused = "refused",
        /// Failed, and the client can fix it.
        ClientFault = "client_fault",
        /// Failed, and the agent's owner can fix it.
        AgentFault = "agent_fault",
        /// Failed, by a bug or the configuration of the gateway.
        GatewayFault = "gateway_fault",
        /// Cancelled by the client.
        Cancelled = "cancelled",
        /// The client left before the end.
        ClientGone = "client_gone",
    }
}

impl Default for Outcome {
    /// The outcome of a request to which nothing else happens.
    fn default() -> Self {
        Self::Ok
    }
}

labels! {
    /// The outcome of a token for an agent.
    Token {
        /// It was fetched.
        Fetched = "fetched",
        /// It could not be fetched.
        Failed = "failed",
        /// The agent rejected it.
        Refused = "refused",
    }
}

labels! {
    /// The outcome of a fetch of an agent's card.
    Refresh {
        /// The card is another than before.
        Changed = "changed",
        /// The card is as before.
        Unchanged = "unchanged",
        /// The card could not be fetched or used.
        Failed = "failed",
    }
}

labels! {
    /// The outcome of an agent's push notification.
    Push {
        /// The agent is asked for the state of the task.
        Taken = "taken",
        /// The agent is asked already, and once more after that.
        Joined = "joined",
        /// The task is over.
        TaskOver = "task_terminated",
        /// The gateway does not know the task any more.
        UnknownTask = "unknown_task",
        /// The push is about another task than its address, or does not name one.
        OtherTask = "other_task",
        /// It does not authenticate as one of the agent.
        Unproven = "unauthenticated",
        /// Its address is none of the gateway's.
        UnknownAddress = "unknown_address",
        /// Its body could not be read.
        Unread = "unreadable",
        /// No push: the agent asked if the address is the gateway's.
        Validated = "validated",
        /// The A2A client that it is meant for has received it.
        Forwarded = "forwarded",
        /// That client responded with something else than a success.
        ClientRefused = "client_refused",
        /// That client is unreachable, or forbidden, or did not respond in time.
        ClientUnreachable = "client_unreachable",
        /// It cannot be translated to that client's version: the agent does not report the state of
        /// the task.
        Unsaid = "state_unavailable",
        /// The maximum number of pushes is on the way already.
        Overloaded = "overloaded",
    }
}

labels! {
    /// The form in which an agent's question is sent to a client.
    Asked {
        /// With an `input_required` result; the client calls again.
        Mrtr = "mrtr",
        /// With an `elicitation/create` on the stream of the call.
        Elicitation = "elicitation",
        /// As text, with a handle.
        Handle = "handle",
    }
}

labels! {
    /// The outcome of a TLS handshake with a client.
    Handshake {
        /// With a connection.
        Ok = "ok",
        /// The client must present a certificate and presented none.
        NoCertificate = "no_certificate",
        /// None of the authorities issued the certificate.
        UnknownIssuer = "unknown_issuer",
        /// The certificate, or one above it, has expired.
        Expired = "expired",
        /// The certificate, or one above it, is not valid yet.
        NotYetValid = "not_yet_valid",
        /// The certificate, or one above it, has been revoked.
        Revoked = "revoked",
        /// No revocation list states the status of the certificate, or the list has expired.
        RevocationUnknown = "revocation_unknown",
        /// The certificate is not for clients.
        WrongUsage = "wrong_usage",
        /// The client presents too many certificates, too many of one name, or too many bytes of
        /// them.
        ChainTooLarge = "chain_too_large",
        /// Another error of the certificate.
        BadCertificate = "bad_certificate",
        /// Both sides have no version, cipher or certificate in common.
        NothingInCommon = "no_shared_parameters",
        /// The client refused: mostly, it does not trust the listener's certificate.
        RefusedByClient = "refused_by_client",
        /// The bytes are not valid TLS.
        Malformed = "malformed",
        /// The client took too long.
        Timeout = "timeout",
        /// The client left.
        ClientGone = "client_gone",
        /// It was not begun: too many handshakes of this address failed before.
        RateLimited = "rate_limited",
    }
}

labels! {
    /// The outcome of a reload of certificates and lists.
    Reload {
        /// They are used from now on.
        Used = "used",
        /// They are invalid: the old ones stay.
        Refused = "refused",
    }
}

labels! {
    /// The outcome of a reload of the configuration.
    ConfigReload {
        /// It is used from now on.
        Applied = "applied",
        /// It is the one in use, or differs only where a restart is needed.
        Unchanged = "unchanged",
        /// It has problems: the one before stays.
        Rejected = "rejected",
    }
}

labels! {
    /// The outcome of reading a source of agents.
    SourcePoll {
        /// Its agents are known.
        Ok = "ok",
        /// It could not be read: its last agents stay.
        Failed = "failed",
    }
}

labels! {
    /// The reason for which a request was rejected before any agent was contacted.
    Refusal {
        /// The caller did not authenticate.
        Unauthenticated = "unauthenticated",
        /// The caller may not do that.
        Forbidden = "forbidden",
        /// The `Origin` is not allowed.
        Origin = "origin",
        /// The `Host` is none of the gateway's.
        Host = "host",
        /// Too many requests of this caller.
        RateLimited = "rate_limited",
        /// Too many requests altogether, or the gateway is stopping.
        Overloaded = "overloaded",
        /// The maximum number of connections from one address is open.
        AddressConnections = "address_connections",
        /// A connection without the header of the PROXY protocol that its listener expects.
        ProxyHeader = "proxy_header",
        /// The caller holds as many bytes as it may; responses of agents count too.
        CallerBytes = "caller_bytes",
        /// All together hold as many bytes as they may; responses of agents count too.
        Bytes = "bytes",
        /// The maximum number of live tasks is reached.
        TasksFull = "tasks_full",
        /// The body or a header is too large.
        TooLarge = "too_large",
        /// Not valid HTTP, JSON-RPC or MCP.
        Malformed = "malformed",
        /// No such path, agent or session.
        NotFound = "not_found",
        /// The breaker of the agent is open.
        BreakerOpen = "breaker_open",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_distinct_and_in_order() {
        fn check<T: Copy>(all: &[T], label: impl Fn(T) -> &'static str, index: impl Fn(T) -> usize) {
            for (at, item) in all.iter().enumerate() {
                assert_eq!(index(*item), at);
                assert_eq!(all.iter().filter(|other| label(**other) == label(*item)).count(), 1);
            }
        }
        check(&Method::ALL, Method::label, |item| item as usize);
        check(&Outcome::ALL, Outcome::label, |item| item as usize);
        check(&Refresh::ALL, Refresh::label, |item| item as usize);
        check(&Push::ALL, Push::label, |item| item as usize);
        check(&Asked::ALL, Asked::label, |item| item as usize);
        check(&Handshake::ALL, Handshake::label, |item| item as usize);
        check(&Reload::ALL, Reload::label, |item| item as usize);
        check(&ConfigReload::ALL, ConfigReload::label, |item| item as usize);
        check(&SourcePoll::ALL, SourcePoll::label, |item| item as usize);
        check(&Refusal::ALL, Refusal::label, |item| item as usize);
    }

    #[test]
    fn a_known_method_keeps_its_name_and_others_share_one() {
        for method in Method::ALL {
            let of = Method::of(method.label());
            assert!(of == method || of == Method::Other, "{method:?}");
        }
        assert_eq!(Method::of("tools/call"), Method::ToolsCall);
        for unknown in ["", "Tools/Call", "tools/call ", "a2a"] {
            assert_eq!(Method::of(unknown), Method::Other, "{unknown:?}");
        }
    }
}
