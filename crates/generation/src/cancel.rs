//! Cancelling: the wish is recorded first, and the state machine says what it means.

use std::{collections::HashMap, sync::Arc};

use domain::{
    Principal, ProjectId, TaskId, TaskStatus,
    principal::{Access, Role},
    task::{Event, Refusal, TaskSnapshot},
};
use pg::PgError;
use task_state::{Expect, Move, MoveDetail, MoveError, MoveOutcome};
use tenancy::{
    Session,
    projects::{SubmitAccess, SubmitInto, submit_access},
};

use crate::Generation;

/// What became of a cancel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CancelOutcome {
    /// The task has ended; its credits are back.
    Canceled(TaskSnapshot),
    /// The wish is recorded, now or earlier; the provider has to answer first.
    Canceling(TaskSnapshot),
    /// The task had ended before.
    Already(TaskSnapshot),
}

/// Why a task is not cancelled.
#[derive(Debug, thiserror::Error)]
pub enum CancelError {
    /// It does not exist, as far as this caller may know.
    #[error("there is no such task")]
    NotFound,
    /// The caller may look at it, but not change it.
    #[error("this credential may not cancel the task")]
    Forbidden,
    /// The video is being saved and will be charged.
    #[error("the video is being saved; it is too late to cancel")]
    TooLate(Box<TaskSnapshot>),
    /// The store failed; trying again is safe.
    #[error("the cancel could not be stored")]
    Unavailable(#[source] MoveError),
}

impl From<PgError> for CancelError {
    fn from(error: PgError) -> Self {
        Self::Unavailable(error.into())
    }
}

impl Generation {
    /// Asks for the end of a task. Asking again changes nothing.
    ///
    /// # Errors
    /// [`CancelError`].
    pub async fn cancel(&self, session: &Session, task: TaskId) -> Result<CancelOutcome, CancelError> {
        let task_state = &self.shared.task_state;
        // Whose a task is never changes, so any cached version will do for this question.
        let snapshot = task_state.snapshot(task, None).await?.ok_or(CancelError::NotFound)?;
        match self.access(&session.principal, &snapshot).await? {
            Access::Write => {}
            Access::Read => return Err(CancelError::Forbidden),
            Access::Hidden => return Err(CancelError::NotFound),
        }
        let wish = Move {
            task,
            expect: Expect::AnyState,
            event: Event::CancelRequested,
            detail: MoveDetail::default(),
        };
        match task_state.advance(wish).await.map_err(CancelError::Unavailable)? {
            MoveOutcome::Moved(record) if record.snapshot.status == TaskStatus::Canceled => {
                Ok(CancelOutcome::Canceled(record.snapshot.clone()))
            }
            MoveOutcome::Moved(record) => {
                (self.shared.canceling)(task);
                Ok(CancelOutcome::Canceling(record.snapshot.clone()))
            }
            MoveOutcome::Refused(Refusal::Ended, record) => {
                Ok(CancelOutcome::Already(record.snapshot.clone()))
            }
            MoveOutcome::Refused(Refusal::TooLate, record) => {
                Err(CancelError::TooLate(Box::new(record.snapshot.clone())))
            }
            MoveOutcome::Refused(Refusal::NoChange | Refusal::NotApplicable, record)
            | MoveOutcome::Stale(record) => Ok(CancelOutcome::Canceling(record.snapshot.clone())),
            MoveOutcome::Missing => Err(CancelError::NotFound),
        }
    }

    /// What the principal may do to the task. A session knows its roles as of five seconds ago; before somebody is
    /// refused for want of one, it is read fresh.
    async fn access(&self, principal: &Principal, task: &TaskSnapshot) -> Result<Access, PgError> {
        let owner = task.owner();
        let known = principal.access(&owner);
        let Some(project) =
            owner.project.filter(|_| known != Access::Write && owner.tenant == principal.tenant)
        else {
            return Ok(known);
        };
        let mut conn = self.shared.pool.acquire().await?;
        let wish = SubmitInto { project, tenant: principal.tenant, user: principal.user };
        let role = match submit_access(&mut conn, &[wish]).await?.first() {
            Some(SubmitAccess::Member(role)) => Some(*role),
            _ => None,
        };
        Ok(with_role(principal, project, role).access(&owner))
    }
}

/// The principal as it would be with this role in the project.
fn with_role(principal: &Principal, project: ProjectId, role: Option<Role>) -> Principal {
    let mut memberships: HashMap<_, _> = (*principal.memberships).clone();
    match role {
        Some(role) => memberships.insert(project, role),
        None => memberships.remove(&project),
    };
    Principal { memberships: Arc::new(memberships), ..principal.clone() }
}

#[cfg(test)]
mod tests {
    use domain::Scope;

    use super::*;
    use crate::tests_support::World;

    #[tokio::test]
    async fn a_queued_task_ends_at_once_and_gives_its_credits_back() {
        let world = World::new().await;
        let (process, ada) = (world.process().await, world.user(10).await);
        let task = process.submit(&ada, process.request("a cat", 5), None).await.unwrap().task;
        assert_eq!(world.balance(&ada).await.available.get(), 0);
        let outcome = process.generation.cancel(&ada, task).await.unwrap();
        let CancelOutcome::Canceled(snapshot) = outcome else { panic!("{outcome:?}") };
        assert_eq!((snapshot.task_id, snapshot.status), (task, TaskStatus::Canceled));
        assert_eq!(world.balance(&ada).await.available.get(), 10);
        let again = process.generation.cancel(&ada, task).await.unwrap();
        assert!(matches!(again, CancelOutcome::Already(_)), "{again:?}");
        world.assert_sound().await;
    }

    #[tokio::test]
    async fn what_is_not_yours_is_not_there() {
        let world = World::new().await;
        let (process, ada, colleague) = (world.process().await, world.user(10).await, world.user(10).await);
        let stranger = world.another_tenant("wide").await;
        let stranger = world.user_of(stranger, 0, domain::Scopes::default_of_keys()).await;
        let task = process.submit(&ada, process.request("a cat", 5), None).await.unwrap().task;
        for session in [&colleague, &stranger] {
            let hidden = process.generation.cancel(session, task).await;
            assert!(matches!(hidden, Err(CancelError::NotFound)), "{hidden:?}");
        }
        let unknown = process.generation.cancel(&ada, TaskId::generate()).await;
        assert!(matches!(unknown, Err(CancelError::NotFound)), "{unknown:?}");
        let reader = world.rekeyed(&ada, &[Scope::Read]).await;
        let refused = process.generation.cancel(&reader, task).await;
        assert!(matches!(refused, Err(CancelError::Forbidden)), "{refused:?}");
        let server = world.rekeyed(&colleague, &[Scope::TenantWrite]).await;
        assert!(process.generation.cancel(&server, task).await.is_ok());
    }

    #[tokio::test]
    async fn a_project_counts_from_the_moment_it_is_made() {
        let world = World::new().await;
        let (process, ada, bob) = (world.process().await, world.user(10).await, world.user(10).await);
        let project = process.tenancy.create_project(&ada, "Trailer").await.unwrap().id;
        let mut request = process.request("a cat", 5);
        request.project = Some(project);
        let task = process.submit(&ada, request, None).await.unwrap().task;
        // Both sessions are from before these memberships.
        process.tenancy.put_member(&ada, project, bob.principal.user, Role::Viewer).await.unwrap();
        let viewer = process.generation.cancel(&bob, task).await;
        assert!(matches!(viewer, Err(CancelError::Forbidden)), "{viewer:?}");
        process.tenancy.put_member(&ada, project, bob.principal.user, Role::Editor).await.unwrap();
        assert!(matches!(process.generation.cancel(&bob, task).await, Ok(CancelOutcome::Canceled(_))));
        assert!(matches!(process.generation.cancel(&ada, task).await, Ok(CancelOutcome::Already(_))));
    }
}
