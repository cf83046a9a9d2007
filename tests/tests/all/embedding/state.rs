//! The tool with state of `docs/embedding.md`.

use std::sync::atomic::{AtomicU64, Ordering};

use portcullis_sdk::{State, tool};
use portcullis_tools::RegistryBuilder;

/// The number of tickets that were taken.
#[derive(Default)]
pub struct Tickets(AtomicU64);

/// Takes the next ticket.
#[tool(tier = SideEffecting, timeout = "5s")]
pub async fn take_ticket(tickets: &State<Tickets>) -> String {
    format!("ticket {}", tickets.0.fetch_add(1, Ordering::Relaxed) + 1)
}

/// Adds the tool and its state.
pub fn with_tickets(builder: RegistryBuilder) -> RegistryBuilder {
    builder.tool(take_ticket_tool()).tool_state(Tickets::default())
}
