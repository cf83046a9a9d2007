#[tool]
async fn now() {}
