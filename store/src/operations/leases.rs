//! Leases: taking, renewing and proving them.

use super::runs::check_payloads;
use crate::{
    error::{Entity, StoreError},
    json::Json,
    limits::check_name,
    model::{LeaseGuard, RunLease, RunStatus},
    sql::{Sql, parameters},
};

pub(crate) async fn acquire_lease(
    sql: &mut dyn Sql,
    guard: LeaseGuard,
    until: i64,
) -> Result<RunLease, StoreError> {
    check_name("the owner of the lease", &guard.owner)?;
    // One statement tests and takes the lease, so of two owners only one succeeds.
    let row = sql
        .row(
            "update runs set lease_owner = $2, lease_until = $4 where id = $1 and ended = 0 \
             and (lease_owner is null or lease_owner = $2 or lease_until <= $3) \
             returning version, cancel_requested",
            parameters![&guard.run, &guard.owner, guard.now, until],
        )
        .await?;
    let LeaseGuard { run, owner, .. } = guard;
    if let Some(mut row) = row {
        let (version, cancel_requested_at) = (row.int(0)?, row.optional_int(1)?);
        return Ok(RunLease { run, owner, until, version, cancel_requested_at });
    }
    let found =
        sql.row("select ended, lease_owner, lease_until from runs where id = $1", parameters![&run]).await?;
    let mut found = found.ok_or_else(|| StoreError::not_found(Entity::Run, &run))?;
    match (found.int(0)?, found.optional_text(1)?, found.optional_int(2)?) {
        (0, Some(owner), Some(until)) => Err(StoreError::Leased { run, owner, until }),
        // The lease was released between the two statements.
        (0, ..) => Err(StoreError::LeaseLost { run, owner }),
        _ => Err(StoreError::Ended { run }),
    }
}

pub(crate) async fn renew_lease(
    sql: &mut dyn Sql,
    guard: LeaseGuard,
    until: i64,
) -> Result<RunLease, StoreError> {
    // A delayed renewal must not shorten a lease that a later renewal has extended.
    let row = sql
        .row(
            "update runs set lease_until = case when lease_until < $4 then $4 else lease_until end \
             where id = $1 and lease_owner = $2 and lease_until > $3 and ended = 0 \
             returning version, lease_until, cancel_requested",
            parameters![&guard.run, &guard.owner, guard.now, until],
        )
        .await?;
    let Some(mut row) = row else { return Err(why_refused(sql, guard, None).await?) };
    let LeaseGuard { run, owner, .. } = guard;
    let (version, until, cancel_requested_at) = (row.int(0)?, row.int(1)?, row.optional_int(2)?);
    Ok(RunLease { run, owner, until, version, cancel_requested_at })
}

pub(crate) async fn reopen_run(
    sql: &mut dyn Sql,
    guard: LeaseGuard,
    until: i64,
    version: i64,
    state: Json,
) -> Result<RunLease, StoreError> {
    check_name("the owner of the lease", &guard.owner)?;
    check_payloads(&state, &[])?;
    // The version is compared, because the caller has derived the new state from it.
    let row = sql
        .row(
            "update runs set version = version + 1, updated = $3, status = $6, ended = 0, cancel_requested = null, \
             lease_owner = $2, lease_until = $4 where id = $1 and version = $5 and ended = 1 returning version",
            parameters![&guard.run, &guard.owner, guard.now, until, version, RunStatus::Running.as_str()],
        )
        .await?;
    let LeaseGuard { run, owner, .. } = guard;
    let Some(mut row) = row else {
        let found = sql.row("select version, ended from runs where id = $1", parameters![&run]).await?;
        let mut found = found.ok_or_else(|| StoreError::not_found(Entity::Run, &run))?;
        return Err(match (found.int(0)?, found.int(1)?) {
            (found, _) if found != version => StoreError::Conflict { run, expected: version, found },
            // The version is right, so the update was refused because the run is open.
            _ => StoreError::StillOpen { run },
        });
    };
    let version = row.int(0)?;
    sql.execute("update run_states set state = $2 where run = $1", parameters![&run, state.into_text()])
        .await?;
    Ok(RunLease { run, owner, until, version, cancel_requested_at: None })
}

pub(crate) async fn release_lease(sql: &mut dyn Sql, run: String, owner: String) -> Result<(), StoreError> {
    sql.execute(
        // The owner is compared, so that a late release does not take the lease of the next owner.
        "update runs set lease_owner = null, lease_until = null where id = $1 and lease_owner = $2",
        parameters![run, owner],
    )
    .await?;
    Ok(())
}

/// Fails unless the caller has the lease, and keeps others from changing the run until the transaction ends. Returns
/// the run's agent.
pub(super) async fn lock_run(sql: &mut dyn Sql, guard: &LeaseGuard) -> Result<String, StoreError> {
    // An update takes the row's lock in both databases; `select … for update` is unknown to SQLite.
    let row = sql
        .row(
            "update runs set lease_owner = lease_owner where id = $1 and lease_owner = $2 and lease_until > $3 \
             and ended = 0 returning agent",
            parameters![&guard.run, &guard.owner, guard.now],
        )
        .await?;
    match row {
        Some(mut row) => row.text(0),
        None => Err(why_refused(sql, guard.clone(), None).await?),
    }
}

/// The reason why a guarded update changed nothing.
pub(super) async fn why_refused(
    sql: &mut dyn Sql,
    guard: LeaseGuard,
    version: Option<i64>,
) -> Result<StoreError, StoreError> {
    let LeaseGuard { run, owner, now } = guard;
    let row = sql
        .row("select version, ended, lease_owner, lease_until from runs where id = $1", parameters![&run])
        .await?;
    let Some(mut row) = row else { return Ok(StoreError::not_found(Entity::Run, &run)) };
    let (found, ended) = (row.int(0)?, row.int(1)? != 0);
    let leased = row.optional_text(2)?.as_deref() == Some(&*owner)
        && row.optional_int(3)?.is_some_and(|end| end > now);
    Ok(match version {
        // Test the end first: a run that ends releases its lease, so the lease would be missing too.
        _ if ended => StoreError::Ended { run },
        Some(expected) if leased && expected != found => StoreError::Conflict { run, expected, found },
        _ => StoreError::LeaseLost { run, owner },
    })
}
