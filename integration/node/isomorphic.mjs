// isomorphic-git as a client, driven by the tests: one request a line on standard
// input, one answer a line on standard output, both JSON. What went wrong is the
// answer's "error"; the process ends with its input.
import fs from 'node:fs';
import { createInterface } from 'node:readline';

import git from 'isomorphic-git';
import http from 'isomorphic-git/http/node';

const author = { name: 'Ada', email: 'ada@example.com' };

const operations = {
  clone: ({ url, dir, depth }) => git.clone({ fs, http, dir, url, depth: depth || undefined }),

  fetch: ({ dir }) => git.fetch({ fs, http, dir, remote: 'origin', tags: true }),

  async commit({ dir, path, text }) {
    fs.writeFileSync(`${dir}/${path}`, text);
    await git.add({ fs, dir, filepath: path });
    return { oid: await git.commit({ fs, dir, author, message: `work on ${path}\n` }) };
  },

  tag({ dir, name, message }) {
    if (!message) return git.tag({ fs, dir, ref: name });
    return git.annotatedTag({ fs, dir, ref: name, message, tagger: author });
  },

  async push({ dir, specs }) {
    if (specs.length === 0) await git.push({ fs, http, dir });
    for (const spec of specs) {
      const [from, to] = spec.replace('+', '').split(':');
      const ref = from || (await git.currentBranch({ fs, dir })); // of a deletion it is not looked at, but must exist
      await git.push({
        fs, http, dir, remote: 'origin', ref, remoteRef: to, delete: from === '', force: spec.startsWith('+'),
      });
    }
  },

  async refs({ url }) {
    const found = await git.listServerRefs({ http, url, peelTags: true });
    const refs = {};
    for (const { ref, oid, peeled } of found) {
      refs[ref] = oid;
      if (peeled) refs[`${ref}^{}`] = peeled;
    }
    return { refs };
  },
};

for await (const line of createInterface({ input: process.stdin })) {
  const { do: operation, ...request } = JSON.parse(line);
  let answer;
  try {
    answer = (await operations[operation](request)) ?? {};
  } catch (err) {
    answer = { error: `${err.code ?? err.name}: ${err.message} ${JSON.stringify(err.data ?? {})}` };
  }
  console.log(JSON.stringify(answer));
}
