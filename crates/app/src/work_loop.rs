//! The event loop of the scheduler: threads of its own that yield to those that answer requests.
//!
//! Whoever submits waits for an answer, a queued task waits anyway. On one loop both would take turns, and a thousand tasks
//! under way would put off every answer by their turns. So the scheduler has its own threads, and the operating system
//! prefers the others to them whenever there is not enough CPU for both; it never gives them nothing. How late this loop
//! gets by it is what the scheduler lowers its effort by (`scheduler::effort`).

use std::io;

use rustix::process::{getpriority_process, setpriority_process};
use tokio::{
    runtime::{Builder, Handle, Runtime},
    task::JoinHandle,
};

/// The least right to the CPU there is.
const NICE_MAX: i32 = 19;

/// Runs until it is dropped; what is still under way then ends where it stands.
pub(crate) struct WorkLoop(Option<Runtime>);

impl WorkLoop {
    /// Starts the threads with this much less right to the CPU (0 to 19, as `nice` counts).
    ///
    /// # Errors
    /// When the threads cannot be started.
    pub(crate) fn start(nice: u8) -> io::Result<Self> {
        // None names the calling thread. Threads inherit from whoever starts them, which is often one of these: so the target
        // is decided once, here.
        let target = (getpriority_process(None)? + i32::from(nice)).min(NICE_MAX);
        let yielding = move || {
            // A system that refuses this only shares less well.
            if let Err(error) = setpriority_process(None, target) {
                tracing::debug!(%error, "a thread of the scheduler has the usual priority");
            }
        };
        let runtime = Builder::new_multi_thread()
            .enable_all()
            .thread_name("aivideo-work")
            .on_thread_start(yielding)
            .build()?;
        Ok(Self(Some(runtime)))
    }

    fn handle(&self) -> &Handle {
        // It is there until the value is dropped.
        self.0.as_ref().map_or_else(|| unreachable!("the loop runs until it is dropped"), Runtime::handle)
    }

    /// Runs a future there.
    pub(crate) fn spawn<F>(&self, future: F) -> JoinHandle<F::Output>
    where
        F: Future<Output: Send + 'static> + Send + 'static,
    {
        self.handle().spawn(future)
    }
}

impl Drop for WorkLoop {
    fn drop(&mut self) {
        if let Some(runtime) = self.0.take() {
            // Waiting for it is not allowed on another loop's thread.
            runtime.shutdown_background();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The nice value of the calling thread, as the kernel tells it.
    fn nice() -> i32 {
        let stat = std::fs::read_to_string("/proc/thread-self/stat").unwrap();
        let (_, fields) = stat.rsplit_once(") ").unwrap();
        fields.split(' ').nth(16).unwrap().parse().unwrap()
    }

    #[tokio::test]
    async fn its_threads_yield_and_those_around_it_do_not() {
        let before = nice();
        let yielding = (before + 7).min(NICE_MAX);
        let work = WorkLoop::start(7).unwrap();
        assert_eq!(work.spawn(async { nice() }).await.unwrap(), yielding);
        let blocking = work.spawn(async { tokio::task::spawn_blocking(nice).await.unwrap() });
        assert_eq!(blocking.await.unwrap(), yielding);
        assert_eq!(nice(), before);
    }
}
