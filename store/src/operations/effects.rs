//! Effects: which calls of a run have begun, and which have finished.

use super::{
    leases::{lock_run, why_refused},
    pages::{labels_text, page, parse_labels},
    runs::ensure_run,
};
use crate::{
    error::{Entity, StoreError},
    json::Json,
    limits::{
        MAX_ARGUMENTS_BYTES, MAX_EFFECTS, MAX_PAGE_BYTES, MAX_PAYLOAD_BYTES, check_count, check_labels,
        check_name, check_size, to_i64,
    },
    model::{Effect, EffectBegin, EffectEnd, FinishedEffect, LeaseGuard, NewEffect, Page, PageRequest},
    sql::{Row, Sql, parameters},
};

pub(crate) async fn begin_effect(
    sql: &mut dyn Sql,
    guard: LeaseGuard,
    effect: NewEffect,
) -> Result<EffectBegin, StoreError> {
    check_name("the id of the call", &effect.call)?;
    check_name("the tool", &effect.tool)?;
    check_size("the arguments", effect.arguments.len(), MAX_ARGUMENTS_BYTES)?;
    check_labels(&effect.labels)?;
    lock_run(sql, &guard).await?;
    let stored = sql
        .row(
            "select call, tool, arguments, may_repeat, attempts, begun, finished, result, labels, ordinal, bytes \
             from effects where run = $1 and call = $2",
            parameters![&guard.run, &effect.call],
        )
        .await?;
    match stored {
        None => add_effect(sql, &guard, effect).await,
        Some(mut row) => {
            let (stored, ..) = read_effect(&mut row)?;
            if stored.finished.is_some() {
                return Ok(EffectBegin::Finished(stored));
            }
            if !stored.may_repeat {
                return Ok(EffectBegin::Unknown(stored));
            }
            let attempt = stored.attempts + 1;
            sql.execute(
                "update effects set attempts = $3, begun = $4 where run = $1 and call = $2",
                parameters![&guard.run, &effect.call, attempt, guard.now],
            )
            .await?;
            Ok(EffectBegin::Begun { attempt })
        }
    }
}

async fn add_effect(
    sql: &mut dyn Sql,
    guard: &LeaseGuard,
    effect: NewEffect,
) -> Result<EffectBegin, StoreError> {
    let row = sql
        .row("update runs set effects = effects + 1 where id = $1 returning effects", parameters![&guard.run])
        .await?;
    let Some(mut row) = row else { return Err(why_refused(sql, guard.clone(), None).await?) };
    let ordinal = row.int(0)?;
    check_count("the effects of the run", ordinal, MAX_EFFECTS)?;
    sql.execute(
        "insert into effects (run, call, ordinal, tool, bytes, arguments, may_repeat, attempts, begun, labels) \
         values ($1, $2, $3, $4, $5, $6, $7, 1, $8, $9)",
        parameters![
            &guard.run,
            effect.call,
            ordinal,
            effect.tool,
            to_i64(effect.arguments.len()),
            effect.arguments.into_text(),
            effect.may_repeat,
            guard.now,
            labels_text(&effect.labels)?
        ],
    )
    .await?;
    Ok(EffectBegin::Begun { attempt: 1 })
}

pub(crate) async fn finish_effect(
    sql: &mut dyn Sql,
    guard: LeaseGuard,
    end: EffectEnd,
) -> Result<(), StoreError> {
    check_size("the result", end.result.len(), MAX_PAYLOAD_BYTES)?;
    check_labels(&end.labels)?;
    lock_run(sql, &guard).await?;
    let changed = sql
        .execute(
            "update effects set finished = $3, bytes = bytes + $4, result = $5, labels = $6 \
             where run = $1 and call = $2 and finished is null",
            parameters![
                &guard.run,
                &end.call,
                guard.now,
                to_i64(end.result.len()),
                end.result.into_text(),
                labels_text(&end.labels)?
            ],
        )
        .await?;
    if changed == 1 {
        return Ok(());
    }
    let found = sql
        .row("select 1 from effects where run = $1 and call = $2", parameters![&guard.run, &end.call])
        .await?;
    Err(match found {
        Some(_) => StoreError::exists(Entity::Effect, &end.call),
        None => StoreError::not_found(Entity::Effect, &end.call),
    })
}

/// Adds calls that were not written when they began. Their ordinals end with `last`.
pub(crate) async fn add_finished(
    sql: &mut dyn Sql,
    run: &str,
    last: i64,
    effects: Vec<FinishedEffect>,
) -> Result<(), StoreError> {
    check_count("the effects of the run", last, MAX_EFFECTS)?;
    let first = last - to_i64(effects.len());
    for (ordinal, finished) in (first + 1..).zip(effects) {
        let FinishedEffect { effect, begun, finished, result } = finished;
        check_name("the id of the call", &effect.call)?;
        check_name("the tool", &effect.tool)?;
        check_size("the arguments", effect.arguments.len(), MAX_ARGUMENTS_BYTES)?;
        check_size("the result", result.len(), MAX_PAYLOAD_BYTES)?;
        check_labels(&effect.labels)?;
        let bytes = to_i64(effect.arguments.len() + result.len());
        sql.execute(
            "insert into effects (run, call, ordinal, tool, bytes, arguments, may_repeat, attempts, begun, finished, \
             result, labels) values ($1, $2, $3, $4, $5, $6, $7, 1, $8, $9, $10, $11) \
             on conflict (run, call) do update set bytes = excluded.bytes, attempts = effects.attempts + 1, \
             begun = excluded.begun, finished = excluded.finished, result = excluded.result, labels = excluded.labels \
             where effects.finished is null",
            parameters![
                run,
                effect.call,
                ordinal,
                effect.tool,
                bytes,
                effect.arguments.into_text(),
                effect.may_repeat,
                begun,
                finished,
                result.into_text(),
                labels_text(&effect.labels)?
            ],
        )
        .await?;
    }
    Ok(())
}

pub(crate) async fn effects(
    sql: &mut dyn Sql,
    run: String,
    request: PageRequest<i64>,
) -> Result<Page<Effect, i64>, StoreError> {
    ensure_run(sql, &run).await?;
    let limit = request.rows();
    let rows = sql
        .rows(
            "select call, tool, arguments, may_repeat, attempts, begun, finished, result, labels, e.ordinal, bytes \
             from effects e join ( \
                 select ordinal, cast(sum(bytes) over (order by ordinal) as bigint) - bytes as before from ( \
                     select ordinal, bytes from effects where run = $1 and ordinal > $2 order by ordinal limit $3 \
                 ) as candidates \
             ) as sized on sized.ordinal = e.ordinal where e.run = $1 and sized.before < $4 order by e.ordinal",
            parameters![run, request.after.unwrap_or(0), limit, MAX_PAGE_BYTES],
        )
        .await?;
    page(rows, limit, read_effect)
}

fn read_effect(row: &mut Row) -> Result<(Effect, i64, i64), StoreError> {
    let effect = Effect {
        call: row.text(0)?,
        tool: row.text(1)?,
        arguments: Json::stored(row.text(2)?),
        may_repeat: row.int(3)? != 0,
        attempts: row.int(4)?,
        begun: row.int(5)?,
        finished: row.optional_int(6)?,
        result: row.optional_text(7)?.map(Json::stored),
        labels: row.parsed(8, parse_labels)?,
    };
    Ok((effect, row.int(9)?, row.int(10)?))
}
