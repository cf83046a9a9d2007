//! A tool inside a function, and inside a macro.

macro_rules! make {
    ($name:ident, $ty:ty) => {
        /// Made by a macro.
        #[portcullis_sdk::tool]
        async fn $name(value: $ty, maybe: Option<$ty>) -> String {
            format!("{value:?} {maybe:?}")
        }
    };
}

make!(made, u8);

fn main() {
    /// Made in a function.
    #[portcullis_sdk::tool]
    async fn local(value: u8) -> String {
        value.to_string()
    }
    assert_eq!(portcullis_sdk::testing::call(&local_tool(), r#"{"value":1}"#).unwrap().joined_text(), "1");
    assert_eq!(portcullis_sdk::testing::call(&made_tool(), r#"{"value":1}"#).unwrap().joined_text(), "1 None");
}
