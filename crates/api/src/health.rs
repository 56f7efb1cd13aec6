//! What this process can say of its own health. The roles and loops are app's; it hands them in behind
//! [`HealthSource`].

use async_trait::async_trait;
use http::HeaderValue;
use serde::Serialize;
use utoipa::ToSchema;

/// Where health comes from.
#[async_trait]
pub trait HealthSource: Send + Sync + 'static {
    /// The value of `AIVideo-Degraded`: names of what is away, such as `control, provider:mock`. Asked for every answer, so
    /// it must only look at what is already known.
    fn degraded(&self) -> Option<HeaderValue>;

    /// Whether the process makes progress; a reason when it doesn't.
    fn alive(&self) -> Result<(), String>;

    /// Whether the roles of this process can work; all of them, or the one named. None: this process has no such
    /// role.
    async fn ready(&self, role: Option<&str>) -> Option<Readiness>;
}

/// Whether this process can do its work.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct Readiness {
    /// Whether every role that was asked about can work.
    pub ready: bool,
    /// The roles that were asked about.
    pub roles: Vec<RoleReadiness>,
    /// What is away without stopping any role, such as `cache`.
    pub degraded: Vec<String>,
    /// The background loops of these roles.
    pub loops: Vec<LoopReadiness>,
}

/// Whether a role can work.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct RoleReadiness {
    /// The role, such as `api`.
    pub role: String,
    /// Whether it can work.
    pub ready: bool,
    /// Why not.
    pub reason: Option<String>,
}

/// When a loop last came round.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct LoopReadiness {
    /// Its name.
    pub name: String,
    /// Seconds since its last pass ended; null before the first.
    pub idle_seconds: Option<u64>,
    /// Seconds since a pass last went well, or since the start. A pass that finds nothing to do goes well.
    pub since_progress_seconds: u64,
    /// Why its last pass failed.
    pub last_error: Option<String>,
}

/// A process without roles of its own that is always well: for tests and for printing the document.
#[derive(Debug, Clone, Copy, Default)]
pub struct AlwaysWell;

#[async_trait]
impl HealthSource for AlwaysWell {
    fn degraded(&self) -> Option<HeaderValue> {
        None
    }

    fn alive(&self) -> Result<(), String> {
        Ok(())
    }

    async fn ready(&self, role: Option<&str>) -> Option<Readiness> {
        let ready = RoleReadiness { role: "api".to_owned(), ready: true, reason: None };
        match role {
            None | Some("api") => {
                Some(Readiness { ready: true, roles: vec![ready], degraded: vec![], loops: vec![] })
            }
            Some(_) => None,
        }
    }
}
