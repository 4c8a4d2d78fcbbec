// Mastra by its Hono server's A2A routes. Usage as in telling.py: MODEL_URL.
import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import { serve } from "@hono/node-server";
import { Mastra } from "@mastra/core";
import { Agent } from "@mastra/core/agent";
import { MastraServer } from "@mastra/hono";
import { InMemoryTaskStore } from "@mastra/server/a2a/store";
import { Hono } from "hono";

const model = createOpenAICompatible({ name: "scripted", baseURL: process.argv[2], apiKey: "none" })("scripted");
const tide = new Agent({ id: "tide", name: "tide", description: "Tells the tide", instructions: "Tell it.", model, maxRetries: 0 });
const app = new Hono();
const mastra = new Mastra({ agents: { tide }, logger: false });
await new MastraServer({ app, mastra, taskStore: new InMemoryTaskStore() }).init();
serve({ fetch: app.fetch, port: 0, hostname: "127.0.0.1" }, ({ port }) =>
  console.log(`ready http://127.0.0.1:${port}/api/.well-known/tide/agent-card.json`),
);
