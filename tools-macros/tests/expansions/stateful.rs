/// Counts.
#[tool(tier = ReadOnly)]
async fn count(counter: &State<Counter>, n: i64, names: &gate_sdk::State<Names>) -> i64 {
    counter.add(n, names)
}
