// The public guide "Store Session State", walked through with the unmodified npm
// package: a backend that holds the signing key, a sandbox that holds a remote URL.
// Started by TestPI_StoreSessionState, which gives the server's address, the key and
// a git environment.
import assert from 'node:assert/strict';
import { execFileSync, spawnSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import { mkdtempSync, readFileSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Readable } from 'node:stream';
import { after, before, describe, test } from 'node:test';

import { ApiError, GitStorage, RefUpdateError } from '@pierre/storage';

const host = process.env.HEADGATE_HOST;
const key = readFileSync(process.env.HEADGATE_KEY_FILE, 'utf8');
const author = { name: 'Session Bot', email: 'session@example.com' };
const fullSHA = /^[0-9a-f]{40}$/;
const repoId = 'team-red/agent-42';
const branch = 'sessions/42';

// Both base URLs with and without a slash at the end lead to one place.
const store = new GitStorage({ name: 'acme', key, apiBaseUrl: `https://${host}`, storageBaseUrl: host });
const slashed = new GitStorage({ name: 'acme', key, apiBaseUrl: `https://${host}/`, storageBaseUrl: host });

const scratch = mkdtempSync(join(tmpdir(), 'headgate-node-'));
const git = (dir, ...args) => spawnSync('git', args, { cwd: dir ?? scratch, encoding: 'utf8' });
const gitOK = (dir, ...args) => execFileSync('git', args, { cwd: dir ?? scratch, encoding: 'utf8' }).trim();

describe('Store Session State', () => {
  let repo; // the handle that findOne gives
  let main; // head of the default branch
  let head; // head of the session's branch: what the backend keeps in its record
  const states = [];

  before(async () => {
    await store.createRepo({ id: repoId });
  });

  test('PI-15 findOne gives a repo, and null for one that is missing', async () => {
    assert.equal(await store.findOne({ id: 'team-red/none' }), null);
    repo = await store.findOne({ id: repoId });
    assert.equal(repo.id, repoId);
    assert.equal(repo.defaultBranch, 'main');
    assert.ok(Math.abs(Date.parse(repo.createdAt) - Date.now()) < 120_000, `createdAt ${repo.createdAt}`);
    assert.equal((await slashed.findOne({ id: repoId })).defaultBranch, 'main');
    await assert.rejects(store.createRepo({ id: repoId }), /already exists/);
  });

  test('a first commit seeds the empty repo', async () => {
    assert.deepEqual((await repo.listCommits()).commits, []);
    const result = await repo
      .createCommit({ targetBranch: 'main', commitMessage: 'start', author })
      .addFileFromString('README.md', '# agent\n')
      .addFileFromString('src/app.js', 'console.log(1)\n')
      .send();
    main = result.commitSha;
    assert.match(main, fullSHA);
    assert.match(result.refUpdate.oldSha, /^0{40}$/);
    assert.equal(result.refUpdate.newSha, main);
    assert.equal(result.targetBranch, 'main');
    assert.equal(result.blobCount, 2);
    assert.ok(result.packBytes > 0);
  });

  test('PI-7 createBranch from the default branch gives the base SHA', async () => {
    const created = await repo.createBranch({ baseRef: 'main', targetBranch: branch, targetIsEphemeral: true });
    assert.equal(created.commitSha, main);
    assert.equal(created.targetBranch, branch);
    assert.equal(created.targetIsEphemeral, true);
    head = created.commitSha;
  });

  test('PI-8 createBranch from a full SHA', async () => {
    const created = await repo.createBranch({ baseRef: main, targetBranch: 'sessions/from-sha', targetIsEphemeral: true });
    assert.equal(created.commitSha, main);
    await assert.rejects(
      repo.createBranch({ baseRef: '12'.repeat(20), targetBranch: 'sessions/none', targetIsEphemeral: true }),
      (err) => err instanceof ApiError && err.status === 404
    );
  });

  test('PI-10 PI-11 PI-22 a state is one commit; what is not sent is inherited', async () => {
    const result = await repo
      .createCommit({ targetBranch: branch, ephemeral: true, expectedHeadSha: head, commitMessage: 'state 1', author })
      .addFileFromString('.agent/task.json', '{"step":1}\n')
      .addFile('src/new.js', new TextEncoder().encode('export {}\n'))
      .deletePath('src/app.js')
      .send();
    assert.equal(result.refUpdate.oldSha, head);
    head = result.commitSha;
    states.push(head);
    const { paths } = await repo.listFiles({ ref: head });
    assert.deepEqual(paths, ['.agent/task.json', 'README.md', 'src/new.js']);
  });

  test('PI-12 PI-13 the second writer gets precondition_failed and the head', async () => {
    const commit = () =>
      repo
        .createCommit({ targetBranch: branch, ephemeral: true, expectedHeadSha: states[0], commitMessage: 'race', author })
        .addFileFromString('who.txt', `${Math.random()}`);
    const [one, two] = await Promise.allSettled([commit().send(), commit().send()]);
    const [won, lost] = one.status === 'fulfilled' ? [one, two] : [two, one];
    assert.equal(won.status, 'fulfilled');
    assert.equal(lost.status, 'rejected');
    assert.ok(lost.reason instanceof RefUpdateError, `${lost.reason}`);
    assert.equal(lost.reason.reason, 'precondition_failed');
    assert.equal(lost.reason.status, 'precondition_failed');
    assert.equal(lost.reason.refUpdate.oldSha, won.value.commitSha);
    head = won.value.commitSha;
    states.push(head);
  });

  test('PI-14 file, string and stream inputs, over several chunks', async () => {
    const chunk = Buffer.alloc(1 << 20, 'x');
    const hash = createHash('sha256');
    async function* bytes() {
      for (let i = 0; i < 9; i++) {
        chunk[i] = i;
        hash.update(chunk);
        yield Buffer.from(chunk);
      }
    }
    const result = await repo
      .createCommit({ targetBranch: branch, ephemeral: true, expectedHeadSha: head, commitMessage: 'large', author })
      .addFile('big.bin', Readable.from(bytes()))
      .addFile('blob.txt', new Blob(['from a blob']))
      .addFile('empty', '')
      .send();
    head = result.commitSha;
    states.push(head);
    const got = await (await repo.getFileStream({ path: 'big.bin', ref: head })).arrayBuffer();
    assert.equal(got.byteLength, 9 << 20);
    assert.equal(createHash('sha256').update(Buffer.from(got)).digest('hex'), hash.digest('hex'));
    assert.equal(await (await repo.getFileStream({ path: 'empty', ref: head })).text(), '');
  });

  test('PI-3 PI-16 a file by SHA and path, whole, in part and by condition', async () => {
    const response = await repo.getFileStream({ path: '.agent/task.json', ref: states[0] });
    assert.equal(response.status, 200);
    assert.equal(await response.text(), '{"step":1}\n');
    const meta = await repo.headFile({ path: '.agent/task.json', ref: states[0], headers: { range: 'bytes=0-3' } });
    assert.equal(meta.status, 206);
    assert.equal(meta.contentRange, 'bytes 0-3/11');
    const again = await repo.headFile({ path: '.agent/task.json', ref: states[0], headers: { ifNoneMatch: meta.etag } });
    assert.equal(again.status, 304);
    await assert.rejects(repo.getFileStream({ path: 'none', ref: states[0] }), (err) => err.status === 404);
  });

  test('PI-17 the diff of two states, with stats, that git applies', async () => {
    const diff = await repo.getCommitDiff({ sha: states[1], baseSha: main, gitApplyCompatible: true });
    assert.equal(diff.sha, states[1]);
    assert.equal(diff.baseSha, main);
    assert.equal(diff.stats.files, diff.files.length);
    assert.equal(diff.stats.changes, diff.stats.additions + diff.stats.deletions);
    assert.deepEqual(diff.files.map((f) => [f.path, f.state]), [
      ['.agent/task.json', 'added'],
      ['src/app.js', 'deleted'],
      ['src/new.js', 'added'],
      ['who.txt', 'added'],
    ]);
    const clone = join(scratch, 'apply');
    gitOK(null, 'clone', '-q', await repo.getRemoteURL(), clone);
    writeFileSync(join(scratch, 'diff.patch'), diff.files.map((f) => f.raw).join(''));
    gitOK(clone, 'apply', '--index', join(scratch, 'diff.patch'));
    assert.equal(gitOK(clone, 'ls-files', '-s', '.agent/task.json').split(' ')[0], '100644');
    const back = await repo.getCommitDiff({ sha: main, baseSha: states[1] });
    assert.equal(back.stats.files, 4);
    const binary = await repo.getCommitDiff({ sha: states[2], baseSha: states[1] });
    assert.ok(binary.filteredFiles.some((f) => f.path === 'big.bin'));
  });

  test('lists of branches, commits and files', async () => {
    const ordinary = await repo.listBranches();
    assert.deepEqual(ordinary.branches.map((b) => [b.name, b.headSha]), [['main', main]]);
    const ephemeral = await repo.listBranches({ ephemeral: true });
    assert.deepEqual(ephemeral.branches.map((b) => b.name), [branch, 'sessions/from-sha']);
    assert.equal(ephemeral.branches[0].headSha, head);
    const { commits, hasMore, nextCursor } = await repo.listCommits({ branch, ephemeral: true, limit: 2 });
    assert.deepEqual(commits.map((c) => c.sha), [states[2], states[1]]);
    assert.deepEqual(commits[0].parentShas, [states[1]]);
    assert.equal(hasMore, true);
    const rest = await repo.listCommits({ branch, ephemeral: true, limit: 10, cursor: nextCursor });
    assert.deepEqual(rest.commits.map((c) => c.sha), [states[0], main]);
    const { commit } = await repo.getCommit({ sha: states[0] });
    assert.equal(commit.message, 'state 1');
    assert.equal(commit.authorName, author.name);
    const branchDiff = await repo.getBranchDiff({ branch, ephemeral: true, base: 'main' });
    assert.equal(branchDiff.mergeBaseSha, main);
  });

  test('PI-19 a sandbox clones and pushes its one branch and no other', async () => {
    const refPolicies = [
      { pattern: `refs/namespaces/ephemeral/refs/heads/${branch}`, ops: ['no-force-push'] },
      { pattern: '*', ops: ['no-push'] },
    ];
    const ephemeralURL = await repo.getEphemeralRemoteURL({ ttl: 600, refPolicies });
    const mainURL = await repo.getRemoteURL({ ttl: 600, refPolicies });
    assert.match(ephemeralURL, new RegExp(`^https://t:[^@]+@${host}/${repoId}\\+ephemeral\\.git$`));
    const sandbox = join(scratch, 'sandbox');
    gitOK(null, 'clone', '-q', ephemeralURL, sandbox);
    assert.equal(gitOK(sandbox, 'rev-parse', 'HEAD'), head);
    writeFileSync(join(sandbox, 'work.txt'), 'from the sandbox\n');
    gitOK(sandbox, 'add', 'work.txt');
    gitOK(sandbox, 'commit', '-q', '-m', 'work');
    gitOK(sandbox, 'push', '-q');
    head = gitOK(sandbox, 'rev-parse', 'HEAD');
    states.push(head);
    const { branches } = await repo.listBranches({ ephemeral: true });
    assert.equal(branches.find((b) => b.name === branch).headSha, head);

    for (const [remote, spec] of [
      [mainURL, 'HEAD:refs/heads/main'],
      [mainURL, 'HEAD:refs/tags/v1'],
      [ephemeralURL, 'HEAD:refs/heads/sessions/from-sha'],
      [ephemeralURL, `:refs/heads/${branch}`],
      [ephemeralURL, `+${main}:refs/heads/${branch}`],
    ]) {
      const push = git(sandbox, 'push', remote, spec);
      assert.notEqual(push.status, 0, `push of ${spec} went through`);
      assert.match(push.stderr, /denied by policy/, `push of ${spec}`);
    }
    const denied = repo
      .createCommit({ targetBranch: 'main', commitMessage: 'no', author, refPolicies })
      .addFileFromString('x', 'x')
      .send();
    await assert.rejects(denied, (err) => err instanceof RefUpdateError && err.reason === 'forbidden' && /denied by policy/.test(err.message));
    await assert.rejects(
      repo.createBranch({ baseRef: branch, baseIsEphemeral: true, targetBranch: 'promoted', refPolicies }),
      (err) => err.status === 403 && /denied by policy/.test(err.message)
    );
    assert.equal((await repo.listBranches()).branches[0].headSha, main);
  });

  test('PI-1 PI-4 the main remote shows no session', async () => {
    const shown = gitOK(null, 'ls-remote', '-q', await repo.getRemoteURL({ permissions: ['git:read'] }));
    assert.deepEqual(shown.split('\n').map((line) => line.split('\t')[1]), ['HEAD', 'refs/heads/main']);
    const readOnly = git(join(scratch, 'sandbox'), 'push', await repo.getRemoteURL({ permissions: ['git:read'] }), 'HEAD:refs/heads/x');
    assert.notEqual(readOnly.status, 0);
  });

  test('PI-5 earlier states stay readable', async () => {
    for (const state of states) {
      assert.equal(await (await repo.getFileStream({ path: 'README.md', ref: state })).text(), '# agent\n');
    }
  });

  test('a state is promoted: an ordinary branch from the ephemeral one', async () => {
    const promoted = await repo.createBranch({ baseRef: branch, baseIsEphemeral: true, targetBranch: 'promoted' });
    assert.equal(promoted.commitSha, head);
    await repo.deleteBranch({ name: 'promoted' });
  });

  test('deleteBranch ends the session, deleteRepo the repo', async () => {
    const deleted = await repo.deleteBranch({ name: branch, ephemeral: true });
    assert.equal(deleted.ephemeral, true);
    assert.equal(deleted.name ?? deleted.targetBranch, branch);
    await assert.rejects(repo.deleteBranch({ name: branch, ephemeral: true }), (err) => err.status === 404);
    await assert.rejects(repo.deleteBranch({ name: 'main' }), (err) => err.status === 409);
    const repos = await store.listRepos();
    assert.deepEqual(repos.repos.map((r) => r.repoId.length > 0 && r.url), [repoId]);
    const gone = await store.deleteRepo({ id: repoId });
    assert.ok(gone.repoId && gone.message);
    assert.equal(await store.findOne({ id: repoId }), null);
    await assert.rejects(store.deleteRepo({ id: repoId }), /not found|already deleted/);
  });

  after(() => {
    assert.equal(states.length, 4, 'not every state was made');
  });
});
