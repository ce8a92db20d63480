// A worker for Node 20, without packages: it doubles numbers for any plan that asks.
// ZKPLAN_URL is where `zkplan serve` listens, ZKPLAN_TOKEN a token with the role `work`.
const url = process.env.ZKPLAN_URL.replace(/\/$/, "");
const headers = {
  Authorization: `Bearer ${process.env.ZKPLAN_TOKEN ?? ""}`,
  "Content-Type": "application/json",
};
const pause = (seconds) => new Promise((done) => setTimeout(done, 1000 * seconds));

// The answer. A service that is away is asked again.
async function ask(verb, body) {
  for (;;) {
    try {
      const options = { method: "POST", headers, body: JSON.stringify(body) };
      const answer = await fetch(`${url}/v1/leases/${verb}`, options);
      if (answer.status !== 503) {
        return { status: answer.status, data: await answer.json() };
      }
    } catch (error) {
      if (!(error instanceof TypeError)) throw error; // the connection was refused, or broke
    }
    await pause(0.5);
  }
}

async function double(number, seconds = 0) {
  await pause(seconds);
  return 2 * number;
}

for (;;) {
  const wanted = { kinds: ["double"], count: 5, wait: 20, lease: 3 };
  const claimed = await ask("claim", wanted);
  if (claimed.status !== 200) throw new Error(claimed.data.detail);
  const ids = claimed.data.tasks.map((task) => task.id);
  for (const id of ids) console.log("claimed", id);
  // Renew the lease until the work is done: a program that dies renews nothing.
  const renewing = setInterval(() => ask("renew", { ids }), 1000);
  await Promise.all(
    claimed.data.tasks.map(async (task) => {
      const value = { twice: await double(...task.args), by: task.id };
      const told = await ask("complete", { results: [{ id: task.id, value }] });
      if (told.status === 200) console.log("committed", task.id);
      else console.log("refused", task.id, told.data.detail);
    }),
  );
  clearInterval(renewing);
}
