// The official JavaScript client of A2A 0.3, `@a2a-js/sdk` 0.3.14 as an ES module, as `face_checks.mjs` needs it.
// With `--grpc` as its first argument it speaks gRPC, else JSON-RPC.

import {
  ClientFactory,
  ClientFactoryOptions,
  DefaultAgentCardResolver,
  JsonRpcTransportFactory,
} from '@a2a-js/sdk-03/client';
import { GrpcTransportFactory } from '@a2a-js/sdk-03/client/grpc';
import { main } from './face_checks.mjs';
import { grpcTransports } from './grpc_channel.mjs';

const words = process.argv.slice(2).filter((word) => word !== '--grpc');
const grpc = process.argv.includes('--grpc');

const textOf = (parts) => parts.map((part) => (part.kind === 'text' ? part.text : '')).join('');
const wordsOf = (status) => textOf(status.message?.parts ?? []);

function taskOf({ id, contextId: context, status, artifacts = [] }) {
  const parts = artifacts.flatMap((artifact) => artifact.parts);
  const data = parts.filter((part) => part.kind === 'data').map((part) => part.data);
  return { id, context, state: status.state, words: wordsOf(status), text: textOf(parts), data };
}

// By gRPC the client loses `append` (its reader of artifact updates leaves it out): a further piece of an artifact is one
// that is appended.
const begun = new Set();

function isAppended({ taskId, artifact, append }) {
  const artifactOfTask = `${taskId} ${artifact.artifactId}`;
  const isMore = begun.has(artifactOfTask);
  begun.add(artifactOfTask);
  return append ?? (grpc && isMore);
}

function eventOf(event) {
  if (event.kind === 'task') return { ...taskOf(event), text: taskOf(event).text || undefined };
  const { taskId: id, contextId: context, status, artifact } = event;
  if (status) return { id, context, state: status.state, words: wordsOf(status) };
  return { id, context, text: textOf(artifact.parts), append: isAppended(event) };
}

function cardOf({ url, additionalInterfaces = [], skills }) {
  return { urls: [url, ...additionalInterfaces.map((one) => one.url)], skills: skills.map((skill) => skill.id) };
}

const pushOf = ({ taskId: task, pushNotificationConfig: { id, url } }) => ({ task, id, url });

function message(text, turn, metadata) {
  const ids = turn && { taskId: turn.id, contextId: turn.context };
  const parts = [{ kind: 'text', text }];
  return { message: { kind: 'message', messageId: crypto.randomUUID(), role: 'user', parts, metadata, ...ids } };
}

async function connect(url, fetchImpl, headers) {
  const cardResolver = new DefaultAgentCardResolver({ fetchImpl });
  const transports = [
    new JsonRpcTransportFactory({ fetchImpl }),
    grpcTransports(GrpcTransportFactory, headers, url),
  ];
  const preferredTransports = [grpc ? 'GRPC' : 'JSONRPC'];
  const factory = new ClientFactory(ClientFactoryOptions.createFrom(ClientFactoryOptions.default, { transports, preferredTransports }));
  const card = await cardResolver.resolve(url);
  const client = await factory.createFromAgentCard(card);
  return {
    card: async () => cardOf(card),
    send: async (...words) => taskOf(await client.sendMessage(message(...words))),
    async *stream(...words) {
      for await (const event of client.sendMessageStream(message(...words))) yield eventOf(event);
    },
    get: async (id) => taskOf(await client.getTask({ id })),
    cancel: async (id) => taskOf(await client.cancelTask({ id })),
    async *resubscribe(id) {
      for await (const event of client.resubscribeTask({ id })) yield eventOf(event);
    },
    setPush: async ({ task: taskId, ...pushNotificationConfig }) =>
      pushOf(await client.setTaskPushNotificationConfig({ taskId, pushNotificationConfig })),
    getPush: async (id, pushNotificationConfigId) =>
      pushOf(await client.getTaskPushNotificationConfig({ id, pushNotificationConfigId })),
    listPush: async (id) => (await client.listTaskPushNotificationConfig({ id })).map(pushOf),
    deletePush: (id, pushNotificationConfigId) =>
      client.deleteTaskPushNotificationConfig({ id, pushNotificationConfigId }),
    extended: async () => cardOf(await client.getAgentCard()),
  };
}

const none = 'A2A 0.3 has no list of tasks by JSON-RPC or gRPC';
await main({ connect, lacks: { list: none, own_list: none } }, ...words);
