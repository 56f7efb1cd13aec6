// Puts a compressed copy beside each built text, so that the binary serves it without compressing anything itself.
// The copies are compared by what they contain: two versions of a compressor may write the same text differently.
import { readdirSync, readFileSync, writeFileSync } from "node:fs";
import { brotliCompressSync, constants, gzipSync } from "node:zlib";

const dist = new URL(process.argv[2] ?? "dist/", import.meta.url);

for (const name of readdirSync(dist)) {
  if (!/\.(html|js|css)$/.test(name) || name === "theme.js") continue;
  const text = readFileSync(new URL(name, dist));
  writeFileSync(new URL(`${name}.gz`, dist), gzipSync(text, { level: 9 }));
  writeFileSync(
    new URL(`${name}.br`, dist),
    brotliCompressSync(text, { params: { [constants.BROTLI_PARAM_QUALITY]: 11, [constants.BROTLI_PARAM_SIZE_HINT]: text.length } }),
  );
}
