// VoltAgent by its A2AServer. Usage as in telling.py: MODEL_URL.
import { createServer } from "node:net";
import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import { A2AServer } from "@voltagent/a2a-server";
import { Agent, VoltAgent } from "@voltagent/core";
import { honoServer } from "@voltagent/server-hono";

const model = createOpenAICompatible({ name: "scripted", baseURL: process.argv[2], apiKey: "none" })("scripted");
const tide = new Agent({ id: "tide", name: "tide", purpose: "Tells the tide", instructions: "Tell it.", model, maxRetries: 0 });
// Its server takes a port and does not tell which one it got.
const port = await new Promise((resolve) => {
  const probe = createServer().listen(0, "127.0.0.1", () => {
    const { port } = probe.address();
    probe.close(() => resolve(port));
  });
});
const server = honoServer({ port, hostname: "127.0.0.1" });
new VoltAgent({
  agents: { tide },
  a2aServers: { tide: new A2AServer({ id: "tide", name: "tide", version: "1.0.0", agents: { tide } }) },
  server,
});
const card = `http://127.0.0.1:${port}/.well-known/tide/agent-card.json`;
while (!(await fetch(card).then((answer) => answer.ok, () => false))) await new Promise((done) => setTimeout(done, 100));
console.log(`ready ${card}`);
