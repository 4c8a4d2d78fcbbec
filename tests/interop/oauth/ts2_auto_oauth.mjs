// The official TypeScript client, second generation, on its way to a token: asks `server/discover` first.

import { main } from './oauth.mjs';
import { sdk } from './ts2_oauth_sdk.mjs';

await main(sdk({ versionNegotiation: { mode: 'auto' } }));
