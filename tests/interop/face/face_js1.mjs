// The official JavaScript client of A2A 1.0, `@a2a-js/sdk` 1.3.0, as `face_checks.mjs` needs it.
// With `--rest` as its first argument it speaks HTTP+JSON, with `--grpc` gRPC, else JSON-RPC.

import { Role, TaskState } from '@a2a-js/sdk';
import {
  ClientFactory,
  ClientFactoryOptions,
  DefaultAgentCardResolver,
  JsonRpcTransportFactory,
  RestTransportFactory,
} from '@a2a-js/sdk/client';
import { GrpcTransportFactory } from '@a2a-js/sdk/client/grpc';
import { main } from './face_checks.mjs';
import { grpcTransports } from './grpc_channel.mjs';

const BINDINGS = { '--rest': 'HTTP+JSON', '--grpc': 'GRPC' };
const words = process.argv.slice(2).filter((word) => !(word in BINDINGS));
const binding = BINDINGS[process.argv.find((word) => word in BINDINGS)] ?? 'JSONRPC';

const textOf = (parts) => parts.map(({ content }) => (content?.$case === 'text' ? content.value : '')).join('');
const wordsOf = (status) => textOf(status.message?.parts ?? []);
const stateOf = ({ state }) => TaskState[state].replace('TASK_STATE_', '').toLowerCase().replaceAll('_', '-');

function taskOf({ id, contextId: context, status, artifacts = [] }) {
  const parts = artifacts.flatMap((artifact) => artifact.parts);
  const data = parts.filter(({ content }) => content?.$case === 'data').map(({ content }) => content.value);
  return { id, context, state: stateOf(status), words: wordsOf(status), text: textOf(parts), data };
}

function eventOf({ payload: { $case, value } }) {
  if ($case === 'task') return { ...taskOf(value), text: taskOf(value).text || undefined };
  const { taskId: id, contextId: context, status, artifact, append } = value;
  if (status) return { id, context, state: stateOf(status), words: wordsOf(status) };
  return { id, context, text: textOf(artifact.parts), append };
}

function cardOf({ supportedInterfaces, skills }) {
  return { urls: supportedInterfaces.map((one) => one.url), skills: skills.map((skill) => skill.id) };
}

const pushOf = ({ taskId: task, id, url }) => ({ task, id, url });

function request(text, turn, metadata) {
  const parts = [{ content: { $case: 'text', value: text }, metadata: undefined, filename: '', mediaType: '' }];
  const message = {
    messageId: crypto.randomUUID(),
    role: Role.ROLE_USER,
    parts,
    metadata,
    taskId: turn?.id ?? '',
    contextId: turn?.context ?? '',
    extensions: [],
    referenceTaskIds: [],
  };
  return { tenant: '', message, configuration: undefined, metadata: undefined };
}

const everything = {
  tenant: '',
  contextId: '',
  status: TaskState.TASK_STATE_UNSPECIFIED,
  pageSize: 100,
  pageToken: '',
  historyLength: undefined,
  statusTimestampAfter: undefined,
  includeArtifacts: undefined,
};

async function connect(url, fetchImpl, headers) {
  const card = await new DefaultAgentCardResolver({ fetchImpl }).resolve(url);
  const transports = [
    new JsonRpcTransportFactory({ fetchImpl }),
    new RestTransportFactory({ fetchImpl }),
    grpcTransports(GrpcTransportFactory, headers, url),
  ];
  const options = ClientFactoryOptions.createFrom(ClientFactoryOptions.default, {
    transports,
    preferredTransports: [binding],
  });
  const client = await new ClientFactory(options).createFromAgentCard(card);
  if (client.protocolVersion !== '1.0') throw new Error(`speaks ${client.protocolVersion}`);
  const tenant = '';
  return {
    card: async () => cardOf(card),
    send: async (...said) => taskOf(await client.sendMessage(request(...said))),
    async *stream(...said) {
      for await (const event of client.sendMessageStream(request(...said))) yield eventOf(event);
    },
    get: async (id) => taskOf(await client.getTask({ tenant, id, historyLength: undefined })),
    cancel: async (id) => taskOf(await client.cancelTask({ tenant, id, metadata: undefined })),
    async list(contextId = '') {
      const tasks = [];
      let pageToken = '';
      do {
        // Each page needs the token of the one before.
        const page = await client.listTasks({ ...everything, contextId, pageToken });
        tasks.push(...page.tasks.map(taskOf));
        pageToken = page.nextPageToken;
      } while (pageToken);
      return tasks;
    },
    async *resubscribe(id) {
      for await (const event of client.resubscribeTask({ tenant, id })) yield eventOf(event);
    },
    setPush: async ({ task: taskId, id, url: to, token }) =>
      pushOf(await client.createTaskPushNotificationConfig({ tenant, taskId, id, url: to, token, authentication: undefined })),
    getPush: async (taskId, id) => pushOf(await client.getTaskPushNotificationConfig({ tenant, taskId, id })),
    listPush: async (taskId) =>
      (await client.listTaskPushNotificationConfig({ tenant, taskId, pageSize: 0, pageToken: '' })).configs.map(pushOf),
    deletePush: (taskId, id) => client.deleteTaskPushNotificationConfig({ tenant, taskId, id }),
    extended: async () => cardOf(await client.getAgentCard()),
  };
}

await main({ connect, lacks: {} }, ...words);
