//! What comes of calls, and how processes die.

use std::time::Duration;

use super::{Simulator, Source};
use crate::simulation::fault_plan::Fault;
use crate::simulation::history::Violation;
use crate::simulation::pending_call::{Phase, REFUSED};
use crate::simulation::poison::Death;
use crate::simulation::process::Process;
use crate::simulation::world::ProcessId;

impl Simulator {
    /// Decides what comes of a call.
    pub(super) fn serve_ticket(&mut self, index: usize) -> Result<(), Violation> {
        let mut pending_call = self.world.lock().pending_calls.swap_remove(index);
        if pending_call.phase == Phase::Done {
            self.trace.note(format_args!("{pending_call}: answered"));
            pending_call.call.answer();
            return Ok(());
        }
        if pending_call.phase == Phase::Orphaned {
            self.trace.note(format_args!("{pending_call}: takes effect, and nobody waits for it"));
            pending_call.call.take_effect(&mut self.outside);
            return Ok(());
        }
        let declined =
            self.refuses && self.stormy && pending_call.operation == "subscribe" && self.chance(fastrand::Rng::bool);
        if declined || self.strikes(Fault::Refused) {
            self.trace.note(format_args!("{pending_call}: refused"));
            pending_call.call.fail(REFUSED);
            return Ok(());
        }
        if self.strikes(Fault::DiedBefore) {
            self.trace.note(format_args!("{pending_call}: its process dies first"));
            let process = pending_call.process;
            self.world.lock().pending_calls.push(pending_call);
            return self.kill_process(process);
        }
        if self.strikes(Fault::LateEffect) {
            self.trace.note(format_args!("{pending_call}: given up"));
            pending_call.call.fail("timed out");
            pending_call.phase = Phase::Orphaned;
            let mut world = self.world.lock();
            pending_call.not_before = world.elapsed + Duration::from_millis(world.chance.u64(0..15_000));
            world.pending_calls.push(pending_call);
            return Ok(());
        }
        self.calls += 1;
        pending_call.call.take_effect(&mut self.outside);
        if self.strikes(Fault::AnswerLost) {
            self.trace.note(format_args!("{pending_call}: done, and the answer is lost"));
            pending_call.call.fail("the connection broke");
        } else if self.strikes(Fault::DiedAfter) {
            self.trace.note(format_args!("{pending_call}: done, and its process dies"));
            return self.kill_process(pending_call.process);
        } else if self.chance(|chance| chance.u8(..3)) == 0 {
            self.trace.note(format_args!("{pending_call}: done"));
            pending_call.phase = Phase::Done;
            self.world.lock().pending_calls.push(pending_call);
        } else {
            self.trace.note(format_args!("{pending_call}: done and answered"));
            pending_call.call.answer();
        }
        Ok(())
    }

    fn kill_process(&mut self, id: ProcessId) -> Result<(), Violation> {
        match self.processes.iter().position(|process| process.id == id) {
            Some(victim) => self.kill(victim),
            // A call of a process that died before.
            None => Ok(()),
        }
    }

    /// A process dies. Calls that it had under way may take effect nevertheless.
    pub(super) fn kill(&mut self, victim: usize) -> Result<(), Violation> {
        let successor = self.start_process();
        let dead = std::mem::replace(&mut self.processes[victim], successor).id;
        self.trace.note(format_args!("p{dead} dies"));
        self.executor.kill(dead);
        let orphans = {
            let mut world = self.world.lock();
            let mut orphans: Vec<_> =
                world.pending_calls.extract_if(.., |pending_call| pending_call.process == dead).collect();
            orphans.retain(|pending_call| pending_call.phase != Phase::Done && world.chance.bool());
            world.spawned.retain(|(process, _)| *process != dead);
            orphans
        };
        for mut orphan in orphans {
            orphan.phase = Phase::Orphaned;
            self.world.lock().pending_calls.push(orphan);
        }
        let lost: Vec<_> = self.running.extract_if(.., |_, delivery| delivery.process == dead).collect();
        lost.into_iter().try_for_each(|(_, delivery)| self.receive(delivery.source, None))
    }

    /// The running process dies of what it does in its task `task`: that is no sweep, and it happens only so often.
    pub(super) fn die_of(&mut self, death: Death, task: u64) -> Result<(), Violation> {
        let (process, attempts) = {
            let world = self.world.lock();
            (world.running, world.attempts)
        };
        self.trace.note(format_args!("p{process} runs {} and does not survive it", death.invocation));
        if self.running.values().any(|delivery| delivery.task == task && delivery.source == Source::Sweep) {
            let how = format!("a sweep ran {} and died of it", death.invocation);
            return Err(Violation { invariant: "no sweep dies of what it finds", how });
        }
        if death.counts() {
            let retries = self.outside.history.retries(&death.invocation.as_str().into());
            let died = self.deaths.entry(death.clone()).or_default();
            *died += 1;
            if *died > attempts * (1 + retries) {
                let how = format!("{died} workers died of {}, which was tried again {retries} times", death.invocation);
                return Err(Violation { invariant: "what kills is tried only so often", how });
            }
        }
        self.kill_process(process)
    }

    pub(super) fn start_process(&mut self) -> Process {
        self.started += 1;
        Process::new(&self.world, self.started, self.graphs.clone(), (self.store, self.planted))
    }
}
