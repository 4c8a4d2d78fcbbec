// A real A2A 1.0 agent on the official JavaScript SDK, `@a2a-js/sdk` 1.3.0, over JSON-RPC, or with `--grpc` over gRPC and
// no JSON-RPC.
// Not a mock: the SDK makes every byte on the wire. What it does is in `story.mjs`.

import { createServer } from 'node:http';
import { parseArgs } from 'node:util';
import express from 'express';
import { AGENT_CARD_PATH, Role, TaskState } from '@a2a-js/sdk';
import {
  AgentEvent,
  DefaultPushNotificationSender,
  DefaultRequestHandler,
  InMemoryPushNotificationStore,
  InMemoryTaskStore,
} from '@a2a-js/sdk/server';
import { agentCardHandler, jsonRpcHandler, UserBuilder } from '@a2a-js/sdk/server/express';
import { A2AService, grpcService, UserBuilder as GrpcUserBuilder } from '@a2a-js/sdk/server/grpc';
import { openGrpc } from './grpc_server.mjs';
import { cancel, EXTENDED, play, SKILLS, Turn } from './story.mjs';

const stateOf = (name) => TaskState[`TASK_STATE_${name.toUpperCase().replaceAll('-', '_')}`];

function part({ text, data, url, name = '', type = '' }) {
  const content = url ? { $case: 'url', value: url } : data ? { $case: 'data', value: data } : { $case: 'text', value: text };
  return { content, metadata: undefined, filename: name, mediaType: type };
}

const { values } = parseArgs({
  options: { port: { type: 'string', default: '0' }, grpc: { type: 'boolean', default: false } },
});

class Events extends Turn {
  constructor(ids, bus) {
    super(ids);
    this.bus = bus;
  }

  tell(state, parts) {
    const message = parts && {
      role: Role.ROLE_AGENT,
      messageId: crypto.randomUUID(),
      parts: parts.map(part),
      ...this.ids,
      extensions: [],
      referenceTaskIds: [],
      metadata: undefined,
    };
    const status = { state: stateOf(state), message: message || undefined, timestamp: new Date().toISOString() };
    this.bus.publish(AgentEvent.statusUpdate({ ...this.ids, status, metadata: undefined }));
  }

  give(artifactId, one, append, lastChunk) {
    const parts = [part(one)];
    const artifact = { artifactId, name: artifactId, description: '', parts, extensions: [], metadata: undefined };
    this.bus.publish(AgentEvent.artifactUpdate({ ...this.ids, artifact, append, lastChunk, metadata: undefined }));
  }
}

const executor = {
  async execute(context, bus) {
    const { userMessage, task, taskId, contextId } = context;
    const status = { state: TaskState.TASK_STATE_SUBMITTED, timestamp: new Date().toISOString(), message: undefined };
    bus.publish(
      AgentEvent.task(task ?? { id: taskId, contextId, status, artifacts: [], history: [userMessage], metadata: undefined }),
    );
    const words = userMessage.parts.map((one) => (one.content?.$case === 'text' ? one.content.value : ''));
    await play(new Events(context, bus), userMessage.metadata, words.join('\n'));
  },
  async cancelTask(taskId, bus) {
    cancel(taskId, () => new Events({ taskId, contextId: '' }, bus));
  },
};

function card(url, skills) {
  return {
    name: 'JavaScript 1.0 agent',
    description: 'The interop agent on @a2a-js/sdk 1.3',
    supportedInterfaces: [{ url, protocolBinding: values.grpc ? 'GRPC' : 'JSONRPC', tenant: '', protocolVersion: '1.0' }],
    provider: undefined,
    version: '1.0.0',
    capabilities: { streaming: true, pushNotifications: true, extensions: [], extendedAgentCard: true },
    securitySchemes: {},
    securityRequirements: [],
    defaultInputModes: ['text/plain'],
    defaultOutputModes: ['text/plain', 'application/json'],
    skills: Object.entries(skills).map(([id, description]) => ({
      id,
      name: id,
      description,
      tags: ['interop'],
      examples: [],
      inputModes: [],
      outputModes: [],
      securityRequirements: [],
    })),
    documentationUrl: '',
    signatures: [],
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
    app.use(jsonRpcHandler({ requestHandler, userBuilder: UserBuilder.noAuthentication }));
  }
  server.on('request', app);
  console.log(`ready ${url}`);
});
