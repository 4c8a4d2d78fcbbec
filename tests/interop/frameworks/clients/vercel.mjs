// Vercel's `ai` with @ai-sdk/mcp. Usage as in driver.py: VARIANT MCP_URL MODEL_URL PROMPT...
import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import { createMCPClient } from "@ai-sdk/mcp";
import { generateText, stepCountIs } from "ai";

const LIMIT = 60_000; // milliseconds for one case
const [, mcpUrl, modelUrl, ...prompts] = process.argv.slice(2);
const model = createOpenAICompatible({ name: "scripted", baseURL: modelUrl, apiKey: "none" })("scripted");

for (const prompt of prompts) {
  const name = prompt.split(" ")[1].replace(/:$/, "");
  try {
    const client = await createMCPClient({ transport: { type: "http", url: mcpUrl } });
    const tools = await client.tools();
    await generateText({ model, tools, prompt, stopWhen: stepCountIs(20), abortSignal: AbortSignal.timeout(LIMIT) });
    await client.close();
  } catch (error) {
    console.log(`RAISED ${name} ${error.name}: ${String(error.message).replaceAll("\n", " ").slice(0, 400)}`);
  }
}
process.exit(0);
