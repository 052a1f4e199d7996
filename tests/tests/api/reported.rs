//! Durable steps of a run are reported to the feed of the tenant several at once: it tells of each event in order, and once. The
//! stream of their session has each of them at once.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use dormouse_ports::{Commit, InvocationWrite};
use futures::FutureExt;
use serde_json::json;

use crate::shared_streams::{Scene, Stream, told};
use crate::world::{World, ada, ids};

/// What clients are told ahead of a commit of a run.
#[derive(Debug)]
struct Seen {
    of_session: Vec<String>,
    of_tenant: Vec<String>,
}

impl Seen {
    async fn by(world: &World, session: &str) -> Self {
        let of_session = ids(&world.get(&format!("{session}/events?limit=200")).await);
        Self { of_session, of_tenant: ids(&world.get("/v1/events?limit=200").await) }
    }
}

async fn submit(world: &World, session: &str) {
    world.post(&format!("{session}/tasks"), json!({"persona_id": "persona_steps", "input": {}})).await;
}

/// Runs a task of four durable steps: what clients see ahead of each of its commits.
async fn run(world: &Arc<World>, session: &str) -> Vec<Seen> {
    submit(world, session).await;
    let all = Arc::<Mutex<Vec<Seen>>>::default();
    let (clients, path, seen) = (world.clone(), session.to_owned(), all.clone());
    world.gate.hold(move |commit: Commit| {
        let (clients, path, seen) = (clients.clone(), path.clone(), seen.clone());
        async move {
            if let Some(InvocationWrite::Progress { .. } | InvocationWrite::Complete { .. }) = commit.invocation {
                let now = Seen::by(&clients, &path).await;
                seen.lock().unwrap().push(now);
            }
            Ok(())
        }
        .boxed()
    });
    world.work().await;
    world.gate.open();
    std::mem::take(&mut *all.lock().unwrap())
}

#[tokio::test]
async fn the_feed_of_a_tenant_tells_of_all_steps_of_a_run_in_order_and_once() {
    let (world, session) = World::with_session().await;
    let seen = run(&world, &session).await;
    let Seen { of_session: all, of_tenant } = Seen::by(&world, &session).await;
    assert_eq!(of_tenant, all, "once it has ended");
    for Seen { of_session, of_tenant } in &seen {
        assert!(all.starts_with(of_session) && of_session.starts_with(of_tenant), "{of_session:?} {of_tenant:?}");
    }
    let steps: Vec<usize> = seen.iter().map(|seen| seen.of_session.len()).collect();
    assert!(steps.len() >= 4 && steps.windows(2).all(|pair| pair[0] < pair[1]), "each is told at once: {steps:?}");
    let reported: Vec<usize> = seen.iter().map(|seen| seen.of_tenant.len()).collect();
    let behind = seen.iter().filter(|seen| seen.of_tenant.len() < seen.of_session.len()).count();
    assert!(behind >= 2, "the first step is reported, and those behind it later: {reported:?} of {steps:?}");
    for limit in [1, 2, 5] {
        let mut read = Vec::new();
        let mut after = String::new();
        loop {
            let page = world.get(&format!("/v1/events?limit={limit}{after}")).await;
            read.extend(ids(&page));
            let Some(cursor) = page["page"]["next_cursor"].as_str() else { break };
            after = format!("&after_event_id={cursor}");
        }
        assert_eq!(read, all, "in pages of {limit}");
    }
    for (index, event) in all.iter().enumerate() {
        let rest = world.get(&format!("/v1/events?limit=200&after_event_id={event}")).await;
        assert_eq!(ids(&rest), all[index + 1..], "behind {event}");
    }
}

/// Where a stream of the tenant that was opened in the midst of a run has come to.
struct Midway {
    stream: Stream,
    found: Vec<String>,
    of_session: Vec<String>,
}

#[tokio::test]
async fn who_reads_on_behind_a_step_that_was_not_reported_yet_is_told_the_rest_once() {
    let scene = Arc::new(Scene::new());
    let world = scene.world.clone();
    let (session, other) = (world.session().await, world.session().await);
    submit(&world, &session).await;
    let midway = Arc::<Mutex<Option<Midway>>>::default();
    let (clients, path, talk, kept) = (scene.clone(), session.clone(), other.clone(), midway.clone());
    world.gate.hold(move |commit: Commit| {
        let (scene, path, talk, kept) = (clients.clone(), path.clone(), talk.clone(), kept.clone());
        async move {
            if matches!(commit.invocation, Some(InvocationWrite::Complete { .. })) {
                scene.world.clock.advance(Duration::from_millis(1));
                let Seen { of_session, of_tenant } = Seen::by(&scene.world, &path).await;
                let is_reported = |event: &String| of_tenant.contains(event);
                let behind = of_session.iter().rev().take_while(|event| !is_reported(event)).count();
                assert!(behind > 0, "the last step was not reported: {of_session:?}");
                for event in &of_session {
                    let rest = scene.world.get(&format!("/v1/events?limit=200&after_event_id={event}")).await;
                    let place = of_tenant.iter().position(|one| one == event);
                    let known = place.map_or(&[][..], |place| &of_tenant[place + 1..]);
                    assert_eq!(ids(&rest), known, "behind {event}");
                }
                let last = of_session.last().expect("an event");
                let mut stream = scene.open(ada(), &format!("after_event_id={last}")).await;
                let mut found = told(&mut stream);
                scene.say(&talk).await;
                found.extend(told(&mut stream));
                *kept.lock().unwrap() = Some(Midway { stream, found, of_session });
            }
            Ok(())
        }
        .boxed()
    });
    world.work().await;
    world.gate.open();
    let Some(Midway { mut stream, mut found, of_session }) = midway.lock().unwrap().take() else {
        panic!("the run came to its end")
    };
    for _ in 0..4 {
        found.extend(told(&mut stream));
        world.clock.advance(Duration::from_secs(2));
    }
    found.extend(told(&mut stream));
    let all = Seen::by(&world, &session).await.of_session;
    let said = ids(&world.get(&format!("{other}/events")).await);
    let rest = [&said[1..], &all[of_session.len()..]].concat();
    assert_eq!(found, rest);
    for (index, event) in of_session.iter().enumerate() {
        let behind = world.get(&format!("/v1/events?limit=200&after_event_id={event}")).await;
        let own: Vec<String> = ids(&behind).into_iter().filter(|id| all.contains(id)).collect();
        assert_eq!(own, all[index + 1..], "behind {event}");
    }
}
