//! Questions to a person: adding, answering, expiring and listing them.

use super::{
    leases::lock_run,
    pages::{NEWEST, PageItem, page},
};
use crate::{
    error::{Entity, StoreError},
    json::Json,
    limits::{
        MAX_ARGUMENTS_BYTES, MAX_OPEN_APPROVALS, MAX_PAGE_BYTES, MAX_SWEPT_ROWS, check_count, check_name,
        check_size, check_text, to_i64,
    },
    model::{
        ApprovalDecision, ApprovalFilter, ApprovalStatus, LeaseGuard, NewApprovalRequest, Page, PageRequest,
        StoredAnswer, StoredApproval,
    },
    sql::{Sql, SqlRow, parameters},
    store::AgeCursor,
};

/// The columns of a request `a` of a run `r`, in the order that [`read_approval`] takes them.
macro_rules! columns {
    () => {
        "a.id, a.run, a.call, a.tool, a.question, a.hash, a.status, a.created, a.expires, a.decided_by, \
         a.decided_via, a.decided, a.edited_arguments, a.bytes, a.reason, r.agent"
    };
}

pub(crate) async fn add_approval(
    sql: &mut dyn Sql,
    guard: LeaseGuard,
    approval: NewApprovalRequest,
) -> Result<(), StoreError> {
    check_name("the id of the approval", &approval.id)?;
    check_name("the id of the call", &approval.call)?;
    check_name("the tool", &approval.tool)?;
    check_name("the hash", &approval.hash)?;
    check_text("the question", &approval.question)?;
    lock_run(sql, &guard).await?;
    let inserted = sql
        .execute(
            "insert into approvals (id, run, call, tool, bytes, question, hash, status, created, expires) \
             values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10) on conflict (id) do nothing",
            parameters![
                &approval.id,
                &guard.run,
                approval.call,
                approval.tool,
                to_i64(approval.question.len()),
                approval.question,
                approval.hash,
                ApprovalStatus::Waiting.as_str(),
                guard.now,
                approval.expires
            ],
        )
        .await?;
    // `on conflict` reports an existing id alike in both databases, and keeps the transaction usable.
    if inserted == 0 {
        return Err(StoreError::exists(Entity::Approval, &approval.id));
    }
    // The run's row is locked until the commit, so no other transaction adds a request after this count.
    let open = sql
        .row("select count(*) from approvals where run = $1 and status = 'waiting'", parameters![&guard.run])
        .await?;
    let open = open.map_or(Ok(0), |mut row| row.int(0))?;
    check_count("the open approvals of the run", open, MAX_OPEN_APPROVALS)
}

pub(crate) async fn answer_approval(
    sql: &mut dyn Sql,
    id: String,
    hash: String,
    answer: StoredAnswer,
) -> Result<StoredApproval, StoreError> {
    check_name("the person who answers", &answer.by)?;
    check_name("the way of the answer", &answer.via)?;
    if let Some(reason) = &answer.reason {
        check_text("the reason", reason)?;
    }
    // Pages are bounded by `bytes`, so count the bytes that the answer adds to the row.
    let edited_bytes = answer.edited_arguments.as_ref().map_or(0, Json::len);
    check_size("the edited arguments", edited_bytes, MAX_ARGUMENTS_BYTES)?;
    let status = match answer.decision {
        ApprovalDecision::Approve => ApprovalStatus::Approved,
        ApprovalDecision::Deny => ApprovalStatus::Denied,
    };
    let changed = sql
        .execute(
            "update approvals set status = $3, decided_by = $4, decided_via = $5, decided = $6, \
             edited_arguments = $7, bytes = bytes + $8, reason = $9 \
             where id = $1 and hash = $2 and status = 'waiting' and (expires is null or expires > $6)",
            parameters![
                &id,
                &hash,
                status.as_str(),
                answer.by,
                answer.via,
                answer.decided,
                answer.edited_arguments.map(Json::into_text),
                to_i64(edited_bytes + answer.reason.as_ref().map_or(0, String::len)),
                answer.reason
            ],
        )
        .await?;
    // Read the row after the update, so that an error has the status that closed the request.
    let found = approval(sql, id).await?;
    if changed == 1 {
        return Ok(found);
    }
    let id = found.request.id;
    Err(match found.status {
        _ if found.request.hash != hash => StoreError::OtherHash { id },
        // The request still waits and the hash matches, so it has expired.
        ApprovalStatus::Waiting => StoreError::ApprovalClosed { id, status: ApprovalStatus::Expired },
        status => StoreError::ApprovalClosed { id, status },
    })
}

pub(crate) async fn expire_approvals(
    sql: &mut dyn Sql,
    now: i64,
    at_most: u32,
) -> Result<Vec<String>, StoreError> {
    // The outer condition repeats the status for PostgreSQL, as in `expire_external_calls`.
    let limit = i64::from(at_most.min(MAX_SWEPT_ROWS));
    let rows = sql
        .rows(
            "update approvals set status = 'expired' where id in ( \
                 select id from approvals where status = 'waiting' and expires <= $1 order by id limit $2 \
             ) and status = 'waiting' returning id",
            parameters![now, limit],
        )
        .await?;
    rows.into_iter().map(|mut row| row.text(0)).collect()
}

pub(crate) async fn approval(sql: &mut dyn Sql, id: String) -> Result<StoredApproval, StoreError> {
    let row = sql
        .row(
            concat!("select ", columns!(), " from approvals a join runs r on r.id = a.run where a.id = $1"),
            parameters![&id],
        )
        .await?;
    let mut row = row.ok_or_else(|| StoreError::not_found(Entity::Approval, &id))?;
    read_approval(&mut row).map(|found| found.item)
}

pub(crate) async fn approvals(
    sql: &mut dyn Sql,
    filter: ApprovalFilter,
    request: PageRequest<AgeCursor>,
) -> Result<Page<StoredApproval, AgeCursor>, StoreError> {
    let limit = request.rows();
    let (created, id) = request.after.unwrap_or(NEWEST);
    let ApprovalFilter { run, status } = filter;
    let rows = sql
        .rows(
            concat!(
                "select ",
                columns!(),
                " from approvals a join runs r on r.id = a.run join ( \
                     select id, cast(sum(bytes) over (order by created desc, id desc) as bigint) - bytes as before from ( \
                         select id, created, bytes from approvals \
                         where (created, id) < ($1, $2) \
                         and (cast($3 as text) is null or run = $3) and (cast($4 as text) is null or status = $4) \
                         order by created desc, id desc limit $5 \
                     ) as candidates \
                 ) as sized on sized.id = a.id where sized.before < $6 order by a.created desc, a.id desc"
            ),
            parameters![created, id, run, status.map(ApprovalStatus::as_str), limit, MAX_PAGE_BYTES],
        )
        .await?;
    page(rows, limit, read_approval)
}

fn read_approval(row: &mut SqlRow) -> Result<PageItem<StoredApproval, AgeCursor>, StoreError> {
    let (id, run) = (row.text(0)?, row.text(1)?);
    let request = NewApprovalRequest {
        id,
        call: row.text(2)?,
        tool: row.text(3)?,
        question: row.text(4)?,
        hash: row.text(5)?,
        expires: row.optional_int(8)?,
    };
    let status = row.parsed(6, ApprovalStatus::parse)?;
    let decision = match status {
        ApprovalStatus::Approved => Some(ApprovalDecision::Approve),
        ApprovalStatus::Denied => Some(ApprovalDecision::Deny),
        ApprovalStatus::Waiting | ApprovalStatus::Expired => None,
    };
    let answer = match decision {
        Some(decision) => Some(StoredAnswer {
            decision,
            by: row.text(9)?,
            via: row.text(10)?,
            decided: row.int(11)?,
            edited_arguments: row.optional_text(12)?.map(Json::stored),
            reason: row.optional_text(14)?,
        }),
        None => None,
    };
    let approval =
        StoredApproval { request, run, agent: row.text(15)?, created: row.int(7)?, status, answer };
    let cursor = (approval.created, approval.request.id.clone());
    Ok(PageItem { item: approval, cursor, payload_bytes: row.int(13)? })
}
