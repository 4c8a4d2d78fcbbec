// The official TypeScript client, second generation, in a web page: 2026-07-28 where the server speaks it.

import { main } from './page.mjs';
import { sdk } from './ts2_sdk_page.mjs';

await main(sdk('ts2_auto', { versionNegotiation: { mode: 'auto' } }));
