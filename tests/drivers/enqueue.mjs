// Enqueues runs with node-postgres in transactions of its own, and prints the ids of those that were committed.
import pg from "pg";

const [database, user, host, port] = process.argv.slice(2);
const client = new pg.Client({ database, user, host, port: Number(port) });
await client.connect();
const enqueue = "SELECT run FROM detent.enqueue($1, $2, priority => $3, tenant => 'shop')";

await client.query("BEGIN");
await client.query("INSERT INTO orders VALUES (1)");
const committed = await client.query(enqueue, ["mail", { order: 1 }, null]);
await client.query("COMMIT");

await client.query("BEGIN");
await client.query("INSERT INTO orders VALUES (2)");
await client.query(enqueue, ["mail", { order: 2 }, null]);
await client.query("ROLLBACK");

await client.query("BEGIN");
await client.query("INSERT INTO orders VALUES (3)");
await client.query("SAVEPOINT before_enqueue");
let refused = "";
try {
  await client.query(enqueue, ["mail", { order: 3 }, 101]);
} catch (error) {
  refused = error.message;
  await client.query("ROLLBACK TO SAVEPOINT before_enqueue");
}
const kept = await client.query(enqueue, ["mail", { order: 3 }, 100]);
await client.query("COMMIT");

const runs = JSON.stringify([{ payload: { order: 4 } }, { payload: { order: 5 }, priority: 9 }]);
const many = await client.query("SELECT run FROM detent.enqueue_many('mail', $1, 'shop')", [runs]);
await client.end();
console.log(JSON.stringify({ runs: [...committed.rows, ...kept.rows, ...many.rows].map((row) => row.run), refused }));
