// A real A2A 0.3 agent on the official JavaScript SDK, `@a2a-js/sdk` 0.3.14 as an ES module, over JSON-RPC, or with
// `--rest` over HTTP+JSON and no JSON-RPC, or with `--grpc` over gRPC and no JSON-RPC.
// Not a mock: the SDK makes every byte on the wire. What it does is in `story.mjs`.

import { createServer } from 'node:http';
import { parseArgs } from 'node:util';
import express from 'express';
import { AGENT_CARD_PATH } from '@a2a-js/sdk-03';
import {
  DefaultPushNotificationSender,
  DefaultRequestHandler,
  InMemoryPushNotificationStore,
  InMemoryTaskStore,
} from '@a2a-js/sdk-03/server';
import { agentCardHandler, jsonRpcHandler, restHandler, UserBuilder } from '@a2a-js/sdk-03/server/express';
import { A2AService, grpcService, UserBuilder as GrpcUserBuilder } from '@a2a-js/sdk-03/server/grpc';
import { openGrpc } from './grpc_server.mjs';
import { cancel, EXTENDED, play, SKILLS, Turn } from './story.mjs';

const { values } = parseArgs({
  options: {
    port: { type: 'string', default: '0' },
    rest: { type: 'boolean', default: false },
    grpc: { type: 'boolean', default: false },
  },
});
const binding = values.grpc ? 'GRPC' : values.rest ? 'HTTP+JSON' : 'JSONRPC';
const FINAL = ['completed', 'failed', 'canceled', 'rejected', 'input-required'];

function part({ text, data, url, name, type }) {
  if (url) return { kind: 'file', file: { uri: url, name, mimeType: type } };
  return data ? { kind: 'data', data } : { kind: 'text', text };
}

class Events extends Turn {
  constructor(ids, bus) {
    super(ids);
    this.bus = bus;
  }

  tell(state, parts) {
    const message = parts && {
      kind: 'message',
      role: 'agent',
      messageId: crypto.randomUUID(),
      parts: parts.map(part),
      ...this.ids,
    };
    const status = { state, message, timestamp: new Date().toISOString() };
    this.bus.publish({ kind: 'status-update', ...this.ids, status, final: FINAL.includes(state) });
  }

  give(artifactId, one, append, lastChunk) {
    const artifact = { artifactId, name: artifactId, parts: [part(one)] };
    this.bus.publish({ kind: 'artifact-update', ...this.ids, artifact, append, lastChunk });
  }
}

const executor = {
  async execute(context, bus) {
    const { userMessage, task, taskId, contextId } = context;
    const status = { state: 'submitted', timestamp: new Date().toISOString() };
    bus.publish(task ?? { kind: 'task', id: taskId, contextId, status, artifacts: [], history: [userMessage] });
    const words = userMessage.parts.map((one) => (one.kind === 'text' ? one.text : ''));
    await play(new Events(context, bus), userMessage.metadata, words.join('\n'));
    bus.finished();
  },
  async cancelTask(taskId, bus) {
    cancel(taskId, () => new Events({ taskId, contextId: '' }, bus));
  },
};

function card(url, skills) {
  return {
    name: 'JavaScript 0.3 agent',
    description: 'The interop agent on @a2a-js/sdk 0.3',
    url,
    preferredTransport: binding,
    protocolVersion: '0.3.0',
    version: '1.0.0',
    capabilities: { streaming: true, pushNotifications: true },
    supportsAuthenticatedExtendedCard: true,
    defaultInputModes: ['text/plain'],
    defaultOutputModes: ['text/plain', 'application/json'],
    skills: Object.entries(skills).map(([id, description]) => ({ id, name: id, description, tags: ['interop'] })),
  };
}

// Longer than any run: this process stalls for seconds under load, and would then close connections that are in use.
const server = createServer({ keepAliveTimeout: 600_000 });
server.listen(Number(values.port), '127.0.0.1', async () => {
  const url = `http://127.0.0.1:${server.address().port}/`;
  const grpc = values.grpc && (await openGrpc());
  const served = grpc ? grpc.address : url;
  const configs = new InMemoryPushNotificationStore();
  const requestHandler = new DefaultRequestHandler(
    card(served, SKILLS),
    new InMemoryTaskStore(),
    executor,
    undefined,
    configs,
    new DefaultPushNotificationSender(configs),
    async () => card(served, EXTENDED), // for anonymous callers too
  );
  const app = express();
  app.use(`/${AGENT_CARD_PATH}`, agentCardHandler({ agentCardProvider: requestHandler }));
  if (grpc) {
    const userBuilder = GrpcUserBuilder.noAuthentication;
    grpc.server.addService(A2AService, grpcService({ requestHandler, userBuilder }));
  } else {
    const serve = values.rest ? restHandler : jsonRpcHandler;
    app.use(serve({ requestHandler, userBuilder: UserBuilder.noAuthentication }));
  }
  server.on('request', app);
  console.log(`ready ${url}`);
});
