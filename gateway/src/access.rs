//! [`Identity`]: the caller of a request, as its token proves.

use std::{collections::HashMap, sync::Arc};

use axum::{
    extract::FromRequestParts,
    http::{header::AUTHORIZATION, request::Parts},
};
use portcullis_store::{ParticipantKind, StoreError};
use serde::Serialize;
use sha2::{Digest as _, Sha256};

use crate::{
    error::{ApiError, ErrorCode},
    state::GatewayState,
};

portcullis_types::word_enum! {
    /// Whose rights a token has.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
    pub(crate) enum TokenKind as "kind of token" {
        /// The operator's.
        Admin = "admin",
        /// Those of a user.
        User = "user",
        /// Those of an agent.
        Agent = "agent",
        /// Those of a run.
        Run = "run",
    }
}

/// The caller of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Identity {
    /// The operator, with a token of the kind `admin`.
    Admin,
    /// A person, by the participant's id.
    User(String),
    /// An agent, or a program that acts for it.
    Agent(String),
    /// A program that acts for one run of an agent.
    Run { run: String, agent: String },
}

/// Returns the stored form of a token: the SHA-256 of its text, in hexadecimal digits.
pub(crate) fn token_hash(token: &str) -> String {
    hex::encode(Sha256::digest(token))
}

/// The hash of a request's token, which may be unknown.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct TokenHash(String);

impl<S: Send + Sync> FromRequestParts<S> for TokenHash {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, _state: &S) -> Result<Self, ApiError> {
        let header = parts.headers.get(AUTHORIZATION).map(|value| value.as_bytes());
        let token = header
            .and_then(|value| value.split_first_chunk::<7>())
            // The name of a scheme is case-insensitive (RFC 9110, 11.1).
            .filter(|(scheme, _)| scheme.eq_ignore_ascii_case(b"bearer "))
            .and_then(|(_, token)| std::str::from_utf8(token.trim_ascii()).ok())
            .ok_or_else(|| {
                unauthorized("the header `Authorization: Bearer TOKEN` is missing or malformed")
            })?;
        Ok(Self(token_hash(token)))
    }
}

impl FromRequestParts<Arc<GatewayState>> for Identity {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &Arc<GatewayState>) -> Result<Self, ApiError> {
        let hash = TokenHash::from_request_parts(parts, state).await?;
        Self::of_token(state, &hash).await
    }
}

fn unauthorized(message: &str) -> ApiError {
    ApiError::new(ErrorCode::Unauthorized, message)
}

impl Identity {
    /// Returns the identity that a token proves.
    ///
    /// # Errors
    /// [`ErrorCode::Unauthorized`] for an unknown token.
    pub(crate) async fn of_token(
        state: &GatewayState,
        TokenHash(hash): &TokenHash,
    ) -> Result<Self, ApiError> {
        // Look up the hash, so that the time of the comparison reveals nothing about a token.
        let found = state.store.find_token(hash).await?;
        let token = found.ok_or_else(|| unauthorized("the token is unknown"))?;
        match (token.subject_kind.parse(), token.subject) {
            (Ok(TokenKind::Admin), None) => Ok(Self::Admin),
            (Ok(TokenKind::User), Some(id)) => Ok(Self::User(id)),
            (Ok(TokenKind::Agent), Some(id)) => Ok(Self::Agent(id)),
            (Ok(TokenKind::Run), Some(run)) => {
                let agent = state.store.run(&run).await?.summary.agent;
                Ok(Self::Run { run, agent })
            }
            // A row of another form, for example from a newer version, grants nothing.
            _ => Err(unauthorized("the token has no subject")),
        }
    }

    /// # Errors
    /// [`ErrorCode::Forbidden`], unless the caller is the operator.
    pub(crate) fn ensure_admin(&self) -> Result<(), ApiError> {
        match self {
            Self::Admin => Ok(()),
            _ => Err(ApiError::forbidden("this needs a token of the operator")),
        }
    }

    /// Returns the caller's id, if the caller is a user.
    pub(crate) fn user(&self) -> Option<&str> {
        match self {
            Self::User(id) => Some(id),
            _ => None,
        }
    }

    /// Returns whether the caller may see the space: the operator sees all spaces, users and agents see
    /// their own spaces. The token of a run sees none, because its program needs only the run's calls.
    ///
    /// # Errors
    /// [`StoreError`] if the store cannot be read.
    pub(crate) async fn sees_space(&self, state: &GatewayState, space: &str) -> Result<bool, StoreError> {
        match self {
            Self::Admin => Ok(true),
            Self::User(id) | Self::Agent(id) => state.store.is_member(space, id).await,
            Self::Run { .. } => Ok(false),
        }
    }

    /// # Errors
    /// [`ErrorCode::NotFound`] if the caller may not see the space, so that its existence stays
    /// hidden.
    pub(crate) async fn ensure_sees_space(&self, state: &GatewayState, space: &str) -> Result<(), ApiError> {
        if self.sees_space(state, space).await? { Ok(()) } else { Err(ApiError::not_found("space", space)) }
    }

    /// # Errors
    /// [`ErrorCode::NotFound`], unless the caller may see what the agent does. The operator, the
    /// agent itself and a user who shares a space with it may.
    pub(crate) async fn ensure_sees_agent(&self, state: &GatewayState, agent: &str) -> Result<(), ApiError> {
        let sees = match self {
            Self::Admin => true,
            Self::Agent(id) => id == agent,
            // A run's token gives no access to the agent's other runs.
            Self::Run { .. } => false,
            Self::User(id) => state.store.share_space(id, agent).await?,
        };
        let is_agent = async || match state.store.participant(agent).await {
            Ok(participant) => Ok(participant.kind == ParticipantKind::Agent),
            Err(StoreError::NotFound { .. }) => Ok(false),
            Err(error) => Err(error),
        };
        // The operator may ask for any id, so check that it is an agent's.
        if sees && is_agent().await? { Ok(()) } else { Err(ApiError::not_found("agent", agent)) }
    }

    /// Returns whether the caller may see this run of this agent.
    ///
    /// # Errors
    /// [`StoreError`] if the store cannot be read.
    pub(crate) async fn sees_run(
        &self,
        state: &GatewayState,
        (run, agent): (&str, &str),
    ) -> Result<bool, StoreError> {
        match self {
            Self::Admin => Ok(true),
            Self::Agent(id) => Ok(id == agent),
            Self::Run { run: own, .. } => Ok(own == run),
            Self::User(id) => state.store.share_space(id, agent).await,
        }
    }

    /// # Errors
    /// [`ErrorCode::NotFound`], unless the caller may see this run.
    pub(crate) async fn ensure_sees_run(
        &self,
        state: &GatewayState,
        (run, agent): (&str, &str),
    ) -> Result<(), ApiError> {
        let sees = self.sees_run(state, (run, agent)).await?;
        if sees { Ok(()) } else { Err(ApiError::not_found("run", run)) }
    }

    /// Returns the agent to which a listing is restricted. `None` lists all agents; a user sees only some of
    /// them.
    ///
    /// # Errors
    /// [`ErrorCode::NotFound`] if the caller may not see the agent.
    pub(crate) async fn listed_agent(
        &self,
        state: &GatewayState,
        asked: Option<String>,
    ) -> Result<Option<String>, ApiError> {
        match (self, asked) {
            (Self::Admin, asked) => Ok(asked),
            // `VisibleRuns` filters the rows of a user afterwards.
            (Self::User(_), None) => Ok(None),
            (Self::User(_), Some(agent)) => {
                self.ensure_sees_agent(state, &agent).await?;
                Ok(Some(agent))
            }
            (Self::Agent(own) | Self::Run { agent: own, .. }, asked) => match asked {
                Some(agent) if agent != *own => Err(ApiError::not_found("agent", &agent)),
                _ => Ok(Some(own.clone())),
            },
        }
    }

    /// Returns the run whose calls the caller may list, if it is restricted to one run.
    pub(crate) fn listed_run(&self) -> Option<&str> {
        match self {
            Self::Run { run, .. } => Some(run),
            _ => None,
        }
    }

    /// Returns the kind of the caller's token, and the caller's id.
    pub(crate) fn kind_and_id(&self) -> (TokenKind, Option<&str>) {
        match self {
            Self::Admin => (TokenKind::Admin, None),
            Self::User(id) => (TokenKind::User, Some(id)),
            Self::Agent(id) => (TokenKind::Agent, Some(id)),
            Self::Run { run, .. } => (TokenKind::Run, Some(run)),
        }
    }
}

/// Filters a listing over all agents for a caller. Looks up each agent once.
pub(crate) struct VisibleRuns<'a> {
    state: &'a GatewayState,
    caller: &'a Identity,
    known_runs: HashMap<String, bool>,
}

impl<'a> VisibleRuns<'a> {
    pub(crate) fn new(state: &'a GatewayState, caller: &'a Identity) -> Self {
        Self { state, caller, known_runs: HashMap::new() }
    }

    /// Returns whether the caller may see this run of this agent.
    ///
    /// # Errors
    /// [`StoreError`] if the store cannot be read.
    pub(crate) async fn can_see(&mut self, run: &str, agent: &str) -> Result<bool, StoreError> {
        // For a user, visibility depends only on the agent, so it is cached by agent.
        let known = self.caller.user().and_then(|_| self.known_runs.get(agent));
        if let Some(known) = known {
            return Ok(*known);
        }
        let sees = self.caller.sees_run(self.state, (run, agent)).await?;
        if self.caller.user().is_some() {
            self.known_runs.insert(agent.to_owned(), sees);
        }
        Ok(sees)
    }
}
