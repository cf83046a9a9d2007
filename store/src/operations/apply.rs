//! Writes lists of changes in one transaction, alone or together with the result of a call.

use std::collections::VecDeque;

use super::{
    events::{append_event, lock_log},
    external_calls::{external_call, resolve_if_open},
    inbox::push_inbox,
    members::{add_member, remove_member},
    notes::{remove_notes, set_notes},
    space_messages::{post_message, update_message},
};
use crate::{
    error::StoreError,
    json::Json,
    limits::{MAX_CHANGES, MAX_COMMIT_BYTES, MAX_PAYLOAD_BYTES, check_count, check_size, to_i64},
    model::{Change, ChangeResult, ResolveOutcome, ResultDelivery},
    sql::{Sql, parameters},
};

pub(crate) async fn apply(sql: &mut dyn Sql, changes: Vec<Change>) -> Result<Vec<ChangeResult>, StoreError> {
    // Every transaction with several locks takes the lock of the log first, so that no two deadlock.
    lock_log(sql).await?;
    apply_after(sql, changes, Vec::new()).await
}

pub(crate) async fn resolve_external_call_with(
    sql: &mut dyn Sql,
    id: String,
    result: Json,
    now: i64,
    changes: Vec<Change>,
) -> Result<ResolveOutcome, StoreError> {
    check_size("the result", result.len(), MAX_PAYLOAD_BYTES)?;
    // Take the lock before the call's row, because the changes may append events.
    lock_log(sql).await?;
    if let Some(delivery) = resolve_if_open(sql, &id, &result, now).await? {
        let applied = apply_after(sql, changes, vec![ChangeResult::Resolved(delivery)]).await?;
        return Ok(ResolveOutcome::Resolved { delivery, applied });
    }
    let delivered = sql.row("select delivered from calls where id = $1", parameters![&id]).await?;
    let delivered = delivered.map_or(Ok(None), |mut row| row.optional_int(0))?;
    let delivery = delivered.map(|ordinal| match ordinal {
        // Ordinals of an inbox begin with 1, so 0 is free to mean that the run took the result itself.
        0 => ResultDelivery::Inline,
        ordinal => ResultDelivery::Inbox { ordinal },
    });
    Ok(ResolveOutcome::AlreadyClosed { call: Box::new(external_call(sql, id).await?), delivery })
}

/// Writes changes in order. The changes that a [`Change::Derived`] gives replace it.
async fn apply_after(
    sql: &mut dyn Sql,
    changes: Vec<Change>,
    mut applied: Vec<ChangeResult>,
) -> Result<Vec<ChangeResult>, StoreError> {
    let mut waiting = VecDeque::from(changes);
    let (mut count, mut bytes) = (0, 0);
    while let Some(change) = waiting.pop_front() {
        // Count the waiting changes too. Changes that derive further changes without end therefore reaches the
        // limit.
        count += 1;
        check_count("the changes", to_i64(count + waiting.len()), to_i64(MAX_CHANGES))?;
        bytes += size_of(&change);
        check_size("the changes", bytes, MAX_COMMIT_BYTES)?;
        let outcome = match change {
            Change::PostMessage(new) => ChangeResult::Posted(Box::new(post_message(sql, new).await?)),
            Change::UpdateMessage(update) => {
                let (is_changed, message) = update_message(sql, update).await?;
                ChangeResult::Updated { is_changed, message: Box::new(message) }
            }
            Change::AppendEvent(event) => ChangeResult::Event { id: append_event(sql, event).await? },
            Change::PushInbox(entry) => ChangeResult::Inbox { ordinal: push_inbox(sql, entry).await? },
            Change::AddMember { space, participant, joined } => {
                ChangeResult::Joined { is_new: add_member(sql, space, participant, joined).await? }
            }
            Change::RemoveMember { space, participant } => {
                ChangeResult::Left { was_member: remove_member(sql, space, participant).await? }
            }
            Change::SetNotes { agent, kind, notes, now } => {
                set_notes(sql, agent, kind, notes, now).await?;
                ChangeResult::NotesSet
            }
            Change::RemoveNotes { agent, kind, ids } => {
                ChangeResult::NotesRemoved { count: remove_notes(sql, agent, kind, ids).await? }
            }
            Change::Derived(derived) => {
                // Push in reverse order, so that the first derived change is at the front.
                for change in derived.derive(&applied)?.into_iter().rev() {
                    waiting.push_front(change);
                }
                continue;
            }
        };
        applied.push(outcome);
    }
    Ok(applied)
}

/// The bytes of a change's payloads.
fn size_of(change: &Change) -> usize {
    let json = |json: &Option<Json>| json.as_ref().map_or(0, Json::len);
    match change {
        Change::PostMessage(new) => new.text.len() + json(&new.metadata),
        Change::UpdateMessage(update) => update.text.as_ref().map_or(0, String::len) + json(&update.metadata),
        Change::AppendEvent(event) => event.data.len(),
        Change::PushInbox(entry) => entry.body.len(),
        Change::SetNotes { notes, .. } => notes.iter().map(|note| note.body.len()).sum(),
        Change::AddMember { .. }
        | Change::RemoveMember { .. }
        | Change::RemoveNotes { .. }
        | Change::Derived(_) => 0,
    }
}
