//! The promises of every [`StateStore`] and every [`Checkpointer`], as one check per behaviour.
//!
//! Run each entry of [`ALL`], [`JOURNALS`], [`RECORDINGS`] and [`CHECKPOINTS`] on a store of its own: the checks name
//! their records alike and listings show all of them. Give the store small pages, or the checks of paging prove
//! nothing.

mod accept;
mod attempts;
mod cancel;
mod checkpoint;
mod claim;
mod counters;
mod deadline;
mod execution;
mod fan_in;
mod finish;
mod growing;
mod journal;
mod large;
mod pending;
mod progress;
mod recording;
mod rules;
mod scene;
mod session;
mod signal;
mod suspend;
mod upkeep;

use std::sync::Arc;

use dormouse_ports::execution::ExecutionBackend;
use dormouse_ports::{Checkpointer, Records, StateStore};
use futures::future::BoxFuture;

pub use recording::{TellsOfTasks, ToldOfTask};

/// One check; panics when the store breaks the promise.
pub type Check = fn(Arc<dyn StateStore>) -> BoxFuture<'static, ()>;

/// One check; panics when the backend breaks the promise. Each needs an empty workspace of its own.
pub type ExecutionCheck = fn(Arc<dyn ExecutionBackend>) -> BoxFuture<'static, ()>;

macro_rules! execution_checks {
    ($(#[$about:meta])* $list:ident: $($name:ident),+ $(,)?) => {
        $(#[$about])*
        pub const $list: &[(&str, ExecutionCheck)] = &[
            $((concat!("execution::", stringify!($name)), |backend| Box::pin(execution::$name(backend))),)+
        ];
    };
}

execution_checks! {
    /// Checks of files alone: every backend passes them, also one without commands.
    EXECUTION_FILES:
    a_file_is_written_and_read_whole,
    a_write_holds_to_its_condition,
    of_many_writers_one_wins,
    no_path_leaves_the_workspace,
    a_folder_is_no_file,
    definitions_are_not_written,
    files_are_found_by_pattern,
    lines_are_found_by_expression,
}

execution_checks! {
    /// Checks of backends with stored text files and without commands.
    EXECUTION_STORED:
    what_is_no_text_is_not_written,
    no_command_runs,
}

execution_checks! {
    /// Checks of backends with a folder and with commands, beside those of files alone.
    EXECUTION:
    a_file_has_any_bytes,
    rights_stay_and_nothing_is_left_beside,
    nothing_leaves_the_workspace,
    what_is_no_file_is_not_opened,
    a_file_that_is_too_large_is_not_read,
    what_runs_keep_is_not_seen,
    definitions_are_not_changed,
    a_command_says_what_came_of_it,
    a_command_has_an_environment_of_its_own,
    a_command_is_read_by_the_shell_that_it_is_for,
    output_without_end_is_ended,
    a_command_that_ignores_signals_is_ended,
    nothing_of_a_command_is_left,
    a_fork_bomb_is_ended,
    memory_without_end_is_ended,
    a_command_that_makes_no_sense_is_refused,
}

execution_checks! {
    /// Checks of backends that do not copy their files: they may be as large as the disk lets them, and are seen while
    /// a command runs.
    EXECUTION_IN_PLACE:
    a_dropped_command_is_ended,
    a_file_of_a_gigabyte_is_not_read,
}

/// A store that also reads the records of its journals.
pub trait Journaled: StateStore + Records {}

impl<S: StateStore + Records> Journaled for S {}

/// One check; panics when the store breaks the promise.
pub type JournalCheck = fn(Arc<dyn Journaled>) -> BoxFuture<'static, ()>;

macro_rules! journal_checks {
    ($($module:ident: [$($name:ident),+ $(,)?]),+ $(,)?) => {
        /// Every check of journals with its name.
        pub const JOURNALS: &[(&str, JournalCheck)] = &[
            $($((concat!(stringify!($module), "::", stringify!($name)), |store| Box::pin($module::$name(store))),)+)+
        ];
    };
}

journal_checks! {
    journal: [
    a_document_keeps_every_detail_and_counts_its_writes,
    kinds_do_not_share_ids,
    a_document_of_another_version_conflicts,
    a_removed_document_begins_anew,
    an_expired_document_is_not_there,
    documents_are_listed_page_by_page_both_ways,
    what_is_written_between_pages_disturbs_no_listing,
    a_stream_has_no_gap,
    the_newest_append_keeps_the_end_of_a_stream,
    an_append_is_reported_by_a_later_one_of_its_stream,
    what_no_row_reports_yet_has_a_place_before_the_one_that_will,
    an_append_without_a_feed_leaves_what_is_unreported_to_the_next_one,
    appends_take_over_the_end_of_a_stream,
    a_stream_is_read_from_anywhere,
    a_feed_tells_of_appends_in_order,
    many_streams_share_a_feed_and_keep_its_order,
    a_wide_list_is_in_order_and_narrowed_by_label,
    a_journal_and_the_rest_are_one,
    the_same_journal_again_succeeds_once,
    of_many_at_once_one_appends,
    a_journal_that_makes_no_sense_is_refused,
    large_documents_and_entries_survive,
    large_entries_are_read_a_few_at_once_and_all_of_them_in_the_end,
    ],
    counters: [
        what_is_left_is_taken_until_there_is_too_little,
        a_refused_take_writes_nothing_else,
        an_addition_never_fails,
        a_period_begins_once,
        nothing_is_taken_behind_the_end_of_a_period,
        the_same_take_again_counts_once,
        of_many_at_once_no_more_is_taken_than_there_is,
    ],
}

/// One check; panics when the store breaks the promise.
pub type RecordingCheck = fn(Arc<dyn TellsOfTasks>) -> BoxFuture<'static, ()>;

macro_rules! recording_checks {
    ($($name:ident),+ $(,)?) => {
        /// Every check of stores that publish tasks, with its name.
        pub const RECORDINGS: &[(&str, RecordingCheck)] = &[
            $((concat!("recording::", stringify!($name)), |scene| Box::pin(recording::$name(scene))),)+
        ];
    };
}

recording_checks! {
    a_commit_with_a_journal_of_its_own_still_tells_its_task,
    a_commit_whose_own_journal_is_refused_tells_nothing,
    what_nodes_recorded_is_told_once_and_under_their_claim_only,
}

/// One check; panics when the backend breaks the promise.
pub type CheckpointCheck = fn(Arc<dyn Checkpointer>) -> BoxFuture<'static, ()>;

macro_rules! checkpoint_checks {
    ($($name:ident),+ $(,)?) => {
        /// Every check of checkpointers with its name.
        pub const CHECKPOINTS: &[(&str, CheckpointCheck)] = &[
            $((concat!("checkpoint::", stringify!($name)), |backend| Box::pin(checkpoint::$name(backend))),)+
        ];
    };
}

checkpoint_checks! {
    an_unknown_invocation_has_none,
    a_record_can_be_loaded_with_every_detail,
    the_latest_record_counts,
    a_record_that_comes_late_changes_nothing,
    invocations_are_apart,
    every_source_but_one_is_durable_at_once,
    what_was_held_back_is_flushed_with_the_fan_out,
    large_records_replace_each_other,
    a_large_record_that_comes_late_changes_nothing,
    deleting_is_idempotent,
    records_are_listed_page_by_page,
    filters_must_all_hold,
    a_foreign_cursor_is_refused,
}

macro_rules! checks {
    ($($module:ident: [$($name:ident),+ $(,)?]),+ $(,)?) => {
        /// Every check with its name.
        pub const ALL: &[(&str, Check)] = &[
            $($((concat!(stringify!($module), "::", stringify!($name)), |store| Box::pin($module::$name(store))),)+)+
        ];
    };
}

checks! {
    suspend: [
        a_fresh_pause_can_be_loaded,
        an_unknown_invocation_is_absent,
        a_taken_id_conflicts,
        the_same_commit_again_succeeds,
        a_repeated_commit_does_not_undo_what_followed,
        an_empty_commit_succeeds,
    ],
    claim: [
        a_claim_grants_and_loads_everything,
        an_unknown_invocation_is_missing,
        a_second_claim_is_held,
        the_same_owner_is_granted_again,
        an_expired_claim_is_taken_over_with_the_first_payload,
        a_claim_tells_whether_its_payload_was_there_before,
        without_a_payload_only_an_expired_claim_is_taken_over,
        a_claim_is_passed_over_only_by_who_names_it,
        another_generation_is_settled,
        a_later_pause_settles_an_earlier_one,
        a_released_claim_forgets_its_payload,
        a_claim_is_held_by_its_owner_alone,
        concurrent_claims_give_exactly_one,
    ],
    finish: [
        a_completed_invocation_settles_with_its_state,
        a_failed_invocation_settles_with_its_failure,
        a_foreign_owner_cannot_finish,
        an_unclaimed_pause_can_fail,
        a_claimed_pause_cannot_fail_without_its_owner,
        nothing_finishes_twice,
        a_finished_pause_keeps_no_state,
        a_foreign_owner_cannot_release,
        a_claimed_invocation_sleeps_again,
    ],
    cancel: [
        a_sleeper_is_canceled_with_everything_that_would_wake_it,
        whoever_resumes_a_canceled_invocation_writes_nothing,
        only_the_pause_that_was_meant_is_canceled,
        what_is_over_is_not_canceled,
        a_forestalled_invocation_can_neither_sleep_nor_end,
        what_is_stored_is_not_forestalled,
        an_end_without_a_pause_is_kept_once,
    ],
    progress: [
        a_step_is_where_the_next_worker_goes_on,
        a_step_that_arrives_behind_the_next_one_is_refused,
        a_step_may_leave_the_rest_to_another_worker,
        the_first_step_stores_an_invocation_of_which_nothing_was_stored,
    ],
    attempts: [
        claims_are_counted_until_it_gets_further,
        an_attempt_that_is_given_back_or_left_does_not_count,
        a_claim_that_is_let_go_is_taken_over_at_once_with_its_payload,
        what_is_put_aside_stays_whole,
        what_is_put_aside_can_be_canceled,
        only_what_was_put_aside_is_tried_again,
        what_had_not_begun_is_put_aside_as_well,
    ],
    accept: [
        what_is_accepted_waits_for_whoever_comes_first,
        what_is_accepted_is_accepted_once,
        what_waits_for_other_work_is_behind_what_does_not,
        a_journal_accepts_work_together_with_all_else_or_not_at_all,
        work_is_found_in_the_order_of_its_acceptance,
        work_is_found_behind_much_that_is_being_done,
        what_began_ends_like_any_other,
        what_is_given_back_before_it_began_waits_again,
        what_is_accepted_can_be_canceled,
        a_delivered_payload_waits_for_whoever_comes_first,
    ],
    signal: [
        a_wait_is_visible,
        an_ended_wait_is_delivered,
        an_early_signal_fails_the_commit,
        an_early_signal_is_consumed_by_a_claimed_pause,
        a_claimed_pause_consumes_only_its_own_payload,
        a_second_waiter_is_refused,
        a_delivered_signal_can_be_waited_for_again,
        the_same_signal_can_be_awaited_twice_in_a_row,
        an_expired_signal_is_ignored,
        a_parked_signal_is_deduplicated,
        another_payload_finds_the_place_occupied,
        an_expired_signal_makes_room,
        a_late_duplicate_is_not_parked,
        an_awaited_signal_is_not_parked,
    ],
    session: [
        an_unknown_session_has_no_record,
        a_save_can_be_loaded_with_every_detail,
        versions_count_saves,
        another_version_conflicts,
        no_expectation_lets_the_last_write_win,
        a_save_without_expectation_repeats_once,
        a_lease_excludes_others,
        a_renewed_lease_keeps_its_fence,
        an_expired_lease_passes_on_with_a_larger_fence,
        a_lease_is_passed_over_only_by_who_names_it,
        a_released_lease_is_free,
        a_lost_lease_fails_the_commit,
        a_lease_alone_makes_no_record,
        a_lease_can_be_given_back_without_a_save,
        deleting_is_idempotent,
        a_failed_session_condition_writes_nothing_of_the_invocation,
        a_failed_invocation_condition_writes_nothing_of_the_session,
        sessions_are_listed_page_by_page,
        session_filters_must_all_hold,
        a_foreign_session_cursor_is_refused,
    ],
    pending: [
        a_pause_is_pending_until_it_ends,
        a_new_pause_replaces_the_row_of_the_old,
        rows_are_listed_page_by_page,
        more_rows_than_the_shards_have_pages_for_are_all_listed,
        only_due_rows_are_listed,
        rows_may_end_while_they_are_listed,
        a_foreign_pending_cursor_is_refused,
        a_row_can_be_looked_up,
    ],
    upkeep: [
        a_glance_tells_standing_and_generation,
        only_claims_that_are_out_of_time_are_dead,
        a_wait_of_nobody_is_collected,
        a_registered_row_says_so,
        nothing_is_registered_that_is_gone,
        only_the_row_of_that_pause_is_removed,
        a_lost_row_is_written_again_once,
        a_lost_wait_is_written_again_where_its_place_is_free,
        no_wait_is_written_again_of_a_pause_that_is_over,
        what_was_parked_is_listed_until_it_is_removed,
        a_position_is_kept_for_each_lane,
    ],
    rules: [
        the_first_touch_makes_an_entry_and_later_ones_keep_its_edition,
        an_idle_entry_is_idle_until_it_is_touched,
        only_an_entry_that_nobody_touched_goes,
        a_row_says_which_rule_its_pause_needs,
    ],
    deadline: [
        a_passed_deadline_moves_the_row,
        a_deadline_passes_once,
        a_repeated_advance_succeeds,
        a_claimed_pause_keeps_its_deadline,
        an_end_that_missed_a_deadline_is_refused,
        what_is_left_of_the_deadlines_survives_a_claim,
        the_next_pause_begins_its_own_deadlines,
        a_cancellation_means_one_deadline,
    ],
    fan_in: [
        a_wait_of_every_part_is_visible,
        answers_are_kept_beside_the_pause,
        an_answer_that_did_not_see_another_is_refused,
        a_repeated_answer_is_noted_once,
        of_answers_at_once_one_is_noted,
        only_who_knows_all_answers_claims,
        only_who_knows_all_answers_delivers,
        a_pause_that_expects_one_signal_knows_no_answers,
        while_it_is_claimed_no_answer_is_noted,
        a_released_claim_keeps_the_answers,
        every_part_is_freed_by_the_end,
        every_part_is_freed_by_a_cancellation,
        the_next_pause_may_expect_some_of_the_same,
        what_a_later_pause_waits_for_is_parked_meanwhile,
        a_taken_part_takes_all,
        what_was_parked_for_parts_is_consumed_together,
        twenty_five_parts_fit_into_one_commit,
        lost_waits_of_parts_are_written_again,
    ],
    growing: [
        a_list_grows_save_by_save,
        a_list_that_did_not_only_grow_is_saved_as_it_is,
        what_was_told_of_another_list_misleads_nobody,
        a_pause_keeps_its_list_while_the_session_goes_on,
        two_turns_append_to_the_same_list,
        an_invocation_without_a_session_has_lists_of_its_own,
        lists_of_inner_states_are_no_lists_of_the_outermost,
        a_long_history_survives_a_pause,
    ],
    large: [
        a_large_session_state_survives,
        a_large_pause_survives,
        a_large_final_state_survives,
        a_large_payload_survives,
        a_large_early_signal_survives,
    ],
}
