//! Participants, spaces and messages of the tests.

use portcullis_store::{
    Author, Change, ChangeResult, GatewayStore, MessageKind, MessageStatus, NewEvent, NewInboxEntry,
    NewMessage, NewParticipant, NewSpace, ParticipantKind, SpaceMessage,
};

use super::{NOW, json};

pub(crate) fn new_participant(id: &str, kind: ParticipantKind) -> NewParticipant {
    NewParticipant {
        id: id.to_owned(),
        kind,
        name: format!("name of {id}"),
        definition: json("{}"),
        created: NOW,
    }
}

pub(crate) async fn add_participant(store: &dyn GatewayStore, id: &str, kind: ParticipantKind) {
    store.create_participant(new_participant(id, kind)).await.expect("a new participant");
}

pub(crate) async fn add_space(store: &dyn GatewayStore, id: &str) {
    let space = NewSpace { id: id.to_owned(), name: format!("name of {id}"), created: NOW };
    store.create_space(space).await.expect("a new space");
}

pub(crate) fn new_message(space: &str, id: &str, text: &str) -> NewMessage {
    NewMessage {
        id: id.to_owned(),
        space: space.to_owned(),
        author: Author { id: "u".to_owned(), kind: ParticipantKind::User, name: "Ada".to_owned() },
        kind: MessageKind::Text,
        text: text.to_owned(),
        reply_to: None,
        status: MessageStatus::Complete,
        call: None,
        metadata: None,
        created: NOW,
    }
}

pub(crate) async fn post(store: &dyn GatewayStore, message: NewMessage) -> SpaceMessage {
    let applied = store.apply(vec![Change::PostMessage(message)]).await.expect("posted");
    let [ChangeResult::Posted(message)] = &*applied else { panic!("{applied:?}") };
    (**message).clone()
}

pub(crate) fn new_event(topics: &[&str], data: &str) -> NewEvent {
    NewEvent {
        topics: topics.iter().map(|topic| (*topic).to_owned()).collect(),
        kind: "message.created".to_owned(),
        data: json(data),
        created: NOW,
    }
}

pub(crate) fn new_entry(agent: &str, body: &str) -> NewInboxEntry {
    NewInboxEntry { agent: agent.to_owned(), kind: "message".to_owned(), body: json(body), created: NOW }
}
