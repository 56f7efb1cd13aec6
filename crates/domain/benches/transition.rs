//! What it costs to decide a move of a task: nothing that anybody should ever notice.
//!
//! `cargo bench -p domain`

use divan::{Bencher, black_box};
use domain::{
    failure::FailureClass,
    task::{Attempt, Event, Facts, JobHandle, Seen, TaskState, transition},
};

fn main() {
    divan::main();
}

const FACTS: Facts = Facts { tries: 0, max_tries: 3, cancel_requested: false };
const ATTEMPT: Attempt = Attempt { no: 1, fencing_token: 7 };

/// The moves of a generation that goes well, and a refused submit.
fn moves() -> Vec<(TaskState, Event)> {
    let job = || JobHandle::new("job_0123456789abcdef");
    let observed = |seen| Event::Observed { job: job(), seen };
    vec![
        (TaskState::Queued, Event::Claimed { attempt: ATTEMPT }),
        (TaskState::Scheduling { attempt: ATTEMPT }, observed(Seen::Accepted)),
        (TaskState::ProviderSubmitted { attempt: ATTEMPT, job: job() }, observed(Seen::Running)),
        (TaskState::Running { attempt: ATTEMPT, job: job() }, observed(Seen::Finished)),
        (
            TaskState::Scheduling { attempt: ATTEMPT },
            Event::SubmitRefused { class: FailureClass::Overloaded },
        ),
    ]
}

#[divan::bench]
fn five_moves(bencher: Bencher<'_, '_>) {
    bencher.with_inputs(moves).bench_values(|moves| {
        for (state, event) in moves {
            let _ = black_box(transition(state, FACTS, event));
        }
    });
}
