//! The role `scheduler`: consumers, dispatch, following, output and the reconcilers, all in their own crate.

use domain::WorkerId;
use scheduler::{Nudge, Scheduler, SchedulerParts};

use crate::{
    callbacks,
    compose::{Stores, Work},
    config::Config,
    health::Progress,
};

/// A scheduler, the way to nudge it, and what shows its progress.
pub(crate) fn build(config: &Config, stores: &Stores) -> anyhow::Result<(Scheduler, Nudge, Progress)> {
    let Work { providers } = Work::new(config, stores)?;
    let (scheduler, nudge) = Scheduler::new(SchedulerParts {
        task_state: stores.task_state.clone(),
        control: stores.control.clone(),
        catalogue: stores.catalogue.clone(),
        tenancy: stores.tenancy.clone(),
        providers,
        media: stores.media.clone(),
        bus: stores.bus.clone(),
        worker_id: worker_id()?,
        config: config.scheduler.to_scheduler(),
        clock: stores.clock.clone(),
        seed: rand::random(),
        callback_url: callbacks::addresses(config),
    })?;
    let progress = Progress { loops: scheduler.loops(), consumer: scheduler.consumer() };
    Ok((scheduler, nudge, progress))
}

/// Host, pid and a nonce: never used again, also when the pid is.
fn worker_id() -> anyhow::Result<WorkerId> {
    let host = nix::unistd::gethostname().ok().and_then(|host| host.into_string().ok()).unwrap_or_default();
    let host: String =
        host.chars().filter(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '.')).take(64).collect();
    let nonce = hex::encode(rand::random::<[u8; 6]>());
    Ok(format!("{host}:{}:{nonce}", std::process::id()).parse()?)
}
