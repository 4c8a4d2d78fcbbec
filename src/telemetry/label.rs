//! The closed sets that metrics are labelled with.
//!
//! A peer's text never becomes a label: an unknown method is `other`.

/// Declares a label set: an enum, the list of all of it, and each one's text on the wire.
macro_rules! labels {
    ($(#[$about:meta])* $set:ident { $($(#[$doc:meta])* $variant:ident = $text:literal,)+ }) => {
        $(#[$about])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum $set { $($(#[$doc])* $variant,)+ }

        impl $set {
            /// All of them, in the order of their declaration.
            pub const ALL: [Self; [$(Self::$variant),+].len()] = [$(Self::$variant),+];

            /// The text of the label.
            #[must_use]
            pub const fn label(self) -> &'static str {
                match self { $(Self::$variant => $text,)+ }
            }
        }
    };
}

labels! {
    /// What a client asked for.
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
        /// A client's answer to something that the gateway asked.
        Response = "response",
        /// `GET` of an MCP endpoint: the stream of a session.
        SessionStream = "session_stream",
        /// `DELETE` of an MCP endpoint.
        SessionEnd = "session_end",
        /// A2A `SendMessage`, and what it was called before 1.0; so with all that follow.
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
        /// The list of agents on the A2A face.
        AgentList = "agent_list",
        /// The API catalog.
        ApiCatalog = "api_catalog",
        /// An agent's card on the A2A face.
        AgentCard = "agent_card",
        /// A push notification of an agent.
        Push = "push",
        /// Anything else.
        Other = "other",
    }
}

impl Method {
    /// The label of an MCP method as a client wrote it.
    #[must_use]
    pub fn of(method: &str) -> Self {
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
    /// How a request ended.
    Outcome {
        /// With what was asked for.
        Ok = "ok",
        /// With a handle: the work goes on at the agent.
        Continues = "continues",
        /// With a question to the client.
        InputRequired = "input_required",
        /// Refused: not allowed, too much, too many.
        Refused = "refused",
        /// Failed, and the client can fix it.
        ClientFault = "client_fault",
        /// Failed, and the agent's owner can fix it.
        AgentFault = "agent_fault",
        /// Failed, and it is a bug or the configuration of the gateway.
        GatewayFault = "gateway_fault",
        /// Cancelled by the client.
        Cancelled = "cancelled",
        /// The client left before the end.
        ClientGone = "client_gone",
    }
}

labels! {
    /// What became of a token for an agent.
    Token {
        /// It was fetched.
        Fetched = "fetched",
        /// It could not be fetched.
        Failed = "failed",
        /// The agent refused it.
        Refused = "refused",
    }
}

labels! {
    /// How a fetch of an agent's card ended.
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
    /// What became of an agent's push notification.
    Push {
        /// The agent is asked how the task stands.
        Taken = "taken",
        /// The agent is asked already, and once more after that.
        Joined = "joined",
        /// The task is over.
        TaskOver = "task_terminated",
        /// Nobody here knows the task any more.
        UnknownTask = "unknown_task",
        /// It is about another task than its address, or does not say.
        OtherTask = "other_task",
        /// It does not prove that it comes from the agent.
        Unproven = "unauthenticated",
        /// Its address is none of ours.
        UnknownAddress = "unknown_address",
        /// Its body could not be read.
        Unread = "unreadable",
        /// No push: the agent asked whether the address is ours.
        Validated = "validated",
        /// The A2A client that it is meant for has taken it.
        Forwarded = "forwarded",
        /// That client answered with something else than a success.
        ClientRefused = "client_refused",
        /// That client could not be reached, or may not be, or did not answer in time.
        ClientUnreachable = "client_unreachable",
        /// It cannot be put in that client's version: the agent does not say how the task stands.
        Unsaid = "state_unavailable",
        /// As many are on their way as may be.
        Overloaded = "overloaded",
    }
}

labels! {
    /// How a question of an agent is put to a client.
    Asked {
        /// With an `input_required` result; the client calls again.
        Mrtr = "mrtr",
        /// With an `elicitation/create` on the stream of the call.
        Elicitation = "elicitation",
        /// In words, with a handle.
        Handle = "handle",
    }
}

labels! {
    /// How a TLS handshake with a client ended.
    Handshake {
        /// With a connection.
        Ok = "ok",
        /// The client has to show a certificate and showed none.
        NoCertificate = "no_certificate",
        /// None of the authorities issued the certificate.
        UnknownIssuer = "unknown_issuer",
        /// The certificate, or one above it, has expired.
        Expired = "expired",
        /// The certificate, or one above it, is not valid yet.
        NotYetValid = "not_yet_valid",
        /// The certificate, or one above it, has been revoked.
        Revoked = "revoked",
        /// No revocation list says whether the certificate is good, or it has expired.
        RevocationUnknown = "revocation_unknown",
        /// The certificate is not for clients.
        WrongUsage = "wrong_usage",
        /// The client shows too many certificates, too many of one name, or too many bytes of them.
        ChainTooLarge = "chain_too_large",
        /// Something else is wrong with the certificate.
        BadCertificate = "bad_certificate",
        /// Both sides have no version, cipher or certificate in common.
        NothingInCommon = "no_shared_parameters",
        /// The client refused: mostly, it does not trust the listener's certificate.
        RefusedByClient = "refused_by_client",
        /// What came is not TLS as it should be.
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
    /// What became of certificates and lists that were read again.
    Reload {
        /// They are used from now on.
        Used = "used",
        /// Something is wrong with them: the old ones stay.
        Refused = "refused",
    }
}

labels! {
    /// Why a request was refused before any agent was asked.
    Refusal {
        /// The caller did not prove who it is.
        Unauthenticated = "unauthenticated",
        /// The caller may not do that.
        Forbidden = "forbidden",
        /// The `Origin` is not allowed.
        Origin = "origin",
        /// The `Host` is not ours.
        Host = "host",
        /// Too many requests of this caller.
        RateLimited = "rate_limited",
        /// Too many requests altogether, or the gateway is stopping.
        Overloaded = "overloaded",
        /// As many connections from one address as there may be.
        AddressConnections = "address_connections",
        /// The caller holds as many bytes as it may; answers of agents count too.
        CallerBytes = "caller_bytes",
        /// All together hold as many bytes as they may; answers of agents count too.
        Bytes = "bytes",
        /// As many live tasks as there may be.
        TasksFull = "tasks_full",
        /// The body or a header is too large.
        TooLarge = "too_large",
        /// Not HTTP, JSON-RPC or MCP as it should be.
        Malformed = "malformed",
        /// No such path, agent or session.
        NotFound = "not_found",
        /// The agent fails so often that it is left alone for a while.
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
