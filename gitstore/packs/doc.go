// Package packs keeps the cold tier of one repository: immutable pack files in
// one folder, in git's own format.
//
// A pack is named pack-<40 random hex digits>, never after its content, and a
// name is never used twice. A pack exists only once its owner has registered the
// name elsewhere; this package never lists the folder to find packs, and git
// sees only those that were linked. The folder of a repository:
//
//	<root>/packs/<name>.pack, .idx     the packs, read by name alone
//	<root>/packs/incoming-*            what is being written; swept when old
//	<root>/uploads/<name>/             stages: what will make a pack one day
//	<root>/objects/pack/               hard links: all that git sees
//	<root>/objects/info/
//	<root>/HEAD                        unborn
//	<root>/refs/                       empty for ever
//	<root>/config                      forbids git to delete anything
//
// A Writer makes a pack out of objects; a StoredWriter one of objects that are not
// deflated, which a Stage can collect before; Adopt takes one that git made. A Pack is
// an open pack, shared by all its readers. What is damaged is a *BrokenError with
// the name of its pack, and touches no other pack; wrong bytes are never given.
package packs
