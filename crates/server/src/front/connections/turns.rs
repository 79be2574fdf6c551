//! How the system schedules a thread that serves connections: by how busy it is.
//!
//! On Linux a thread that is woken may take the processor from the one that runs. For a thread that is woken now and then that is
//! right: a request is answered at once. A busy one is woken for nearly every request, and if its clients are on the same machine, it
//! takes the processor from the client that has just sent one and would have sent the next: all of them switch several
//! times for a few requests. As `SCHED_BATCH` it gets as much of the processor as before, but waits for its turn, and
//! then finds many requests. Where a processor is idle it does not wait either way.

use std::cell::RefCell;
use std::time::Duration;

use quanta::Instant;
use rustix::time::{ClockId, clock_gettime};
use tokio::runtime::Builder;

thread_local! {
    static TURNS: RefCell<Turns> = RefCell::new(Turns::new(Instant::now()));
}

/// Lets the threads of this runtime wait for their turn while they are busy.
pub(super) fn take_turns(runtime: &mut Builder) -> &mut Builder {
    // Threads for blocking calls inherit what the one that needs them is at that moment.
    if policy() == Some(libc::SCHED_OTHER) {
        runtime.on_thread_start(|| _ = set_policy(libc::SCHED_OTHER));
    }
    // One that never sleeps is never woken either.
    runtime.on_thread_park(|| TURNS.with_borrow_mut(|turns| turns.before_sleep(Instant::now())))
}

/// What one thread has done lately.
#[derive(Debug)]
struct Turns {
    since: Instant,
    /// How long it had run then.
    ran: Duration,
    /// Whether it waits for its turn; `None` if that is not ours to decide.
    waits: Option<bool>,
}

impl Turns {
    /// How often it is looked at. To ask for the time that a thread ran takes longer than to read the clock.
    const EVERY: Duration = Duration::from_millis(10);
    /// It waits if it ran for more than a quarter of the time, until it has run for less than a thirty-second: one that waits may get its
    /// turn only now and then, and if only some threads wait, all switch more often than if none did.
    const BUSY: u32 = 4;
    const CALM: u32 = 32;

    fn new(now: Instant) -> Turns {
        // Whoever has chosen another policy for the service has reasons. What is allowed is found out at the start, by asking for what is so
        // already: a sandbox may kill whoever asks, and is not to do that under load.
        let is_ours = policy() == Some(libc::SCHED_OTHER) && set_policy(libc::SCHED_OTHER);
        Turns { since: now, ran: ran(), waits: is_ours.then_some(false) }
    }

    fn before_sleep(&mut self, now: Instant) {
        if now - self.since < Turns::EVERY {
            return;
        }
        let (Some(waits), ran) = (self.waits, ran()) else { return };
        let is_to_wait = is_to_wait(waits, ran.saturating_sub(self.ran), now - self.since);
        (self.since, self.ran) = (now, ran);
        if is_to_wait != waits {
            let of = |waits| if waits { libc::SCHED_BATCH } else { libc::SCHED_OTHER };
            let is_done = policy() == Some(of(waits)) && set_policy(of(is_to_wait));
            self.waits = is_done.then_some(is_to_wait);
        }
    }
}

fn is_to_wait(waits: bool, ran: Duration, of: Duration) -> bool {
    ran * if waits { Turns::CALM } else { Turns::BUSY } > of
}

/// How long this thread has run.
fn ran() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::try_from(time).unwrap_or_default()
}

/// How this thread is scheduled.
fn policy() -> Option<i32> {
    // The functions of the C library are about the process, and musl's do nothing.
    // SAFETY: the call takes one number; 0 is the thread that makes it.
    let policy = unsafe { libc::syscall(libc::SYS_sched_getscheduler, 0) };
    i32::try_from(policy).ok().filter(|policy| *policy >= 0)
}

/// Whether the system lets it be scheduled so, as it nearly always does.
fn set_policy(policy: i32) -> bool {
    let priority: libc::c_int = 0;
    // SAFETY: the call reads a structure that consists of one integer, the priority, which lives until it returns.
    unsafe { libc::syscall(libc::SYS_sched_setscheduler, 0, policy, &raw const priority) == 0 }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    /// A worker was woken for two or three requests at a time, and each time took the processor from the client that sent them.
    #[test]
    fn a_busy_thread_waits_for_its_turn_until_it_is_calm_again() {
        let seen = thread::spawn(|| {
            let runtime = take_turns(Builder::new_current_thread().enable_time()).build().expect("a runtime");
            let mut seen = vec![policy()];
            runtime.block_on(async {
                let ran_before = ran();
                while policy() == Some(libc::SCHED_OTHER) && ran() - ran_before < Duration::from_secs(20) {
                    let until = ran() + Turns::EVERY;
                    while ran() < until {}
                    sleep_once().await;
                }
                seen.push(policy());
                for _ in 0..1_000 {
                    if policy() == Some(libc::SCHED_OTHER) {
                        break;
                    }
                    tokio::time::sleep(2 * Turns::EVERY).await;
                }
                seen.push(policy());
            });
            seen
        });
        let seen = seen.join().expect("no panic");
        assert_eq!(seen, [libc::SCHED_OTHER, libc::SCHED_BATCH, libc::SCHED_OTHER].map(Some));
    }

    async fn sleep_once() {
        tokio::time::sleep(Duration::from_micros(1)).await;
    }

    /// The threads that a runtime starts for blocking calls, such as looking up a name, waited for their turn for ever after if it was busy then.
    #[test]
    fn threads_for_blocking_calls_are_scheduled_as_usual() {
        let seen = thread::spawn(|| {
            let runtime = take_turns(&mut Builder::new_current_thread()).build().expect("a runtime");
            assert!(set_policy(libc::SCHED_BATCH) && policy() == Some(libc::SCHED_BATCH));
            runtime.block_on(async { tokio::task::spawn_blocking(policy).await.expect("no panic") })
        });
        assert_eq!(seen.join().expect("no panic"), Some(libc::SCHED_OTHER));
    }

    /// The service of an operator who had started it with `chrt --idle 0`, or has set that since, is not to compete with others.
    #[test]
    fn what_an_operator_has_chosen_stays() {
        for is_before in [true, false] {
            assert_eq!(thread::spawn(move || idle(is_before)).join().expect("no panic"), Some(libc::SCHED_IDLE));
        }
    }

    /// How a busy thread is scheduled if that was set before it began to take turns, or after.
    fn idle(is_before: bool) -> Option<i32> {
        let early = is_before && set_policy(libc::SCHED_IDLE);
        let mut turns = Turns::new(Instant::now());
        assert!(early || set_policy(libc::SCHED_IDLE));
        let until = ran() + 2 * Turns::EVERY;
        while ran() < until {}
        turns.before_sleep(Instant::now());
        policy()
    }

    /// gRPC calls switched more often than before: a thread that waited for its turn seemed calm, and took the processor again.
    #[test]
    fn a_thread_that_waits_for_its_turn_does_not_seem_calm() {
        let [third, tenth, fortieth] = [3, 10, 40].map(|part| Duration::from_secs(1) / part);
        let waits = |waits, ran| is_to_wait(waits, ran, Duration::from_secs(1));
        assert_eq!([third, tenth, fortieth].map(|ran| waits(false, ran)), [true, false, false]);
        assert_eq!([third, tenth, fortieth].map(|ran| waits(true, ran)), [true, true, false]);
    }
}
