// The official TypeScript client, second generation, which asks `server/discover` first.

import { main } from './checks.mjs';
import { sdk } from './ts2_sdk.mjs';

await main(sdk({ versionNegotiation: { mode: 'auto' } }), '2026-07-28');
