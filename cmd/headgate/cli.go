package main

// cli is the command line. Every flag can be given as HEADGATE_<NAME> as well. A
// command is a struct of flags whose Run method takes what run (main.go) binds:
// a context.Context that ends at SIGINT and SIGTERM, and the io.Writer of
// standard output.
type cli struct {
	Quickstart quickstartCmd `cmd:"" help:"Start everything embedded, walk through one session aloud, and go on serving."`
	Serve      serveCmd      `cmd:"" help:"Run the server."`
	Keygen     keygenCmd     `cmd:"" help:"Make an org's signing key and its public key, or a key of the server."`
	Token      tokenCmd      `cmd:"" help:"Sign a token and print it."`
	Session    sessionCmd    `cmd:"" help:"Make, list and end sessions, and all that belongs to them."`
	Snapshot   snapshotCmd   `cmd:"" help:"Save, restore and list memory images of sessions."`
	Deny       denyCmd       `cmd:"" help:"Refuse tokens that have leaked, although they are good."`
	GC         gcCmd         `cmd:"" name:"gc" help:"Remove what no ref and no pin leads to, and merge packs."`
	Fsck       fsckCmd       `cmd:"" help:"Check repos: every object, all history, all indexes."`
	Export     exportCmd     `cmd:"" help:"Write a repo as a plain bare repository or a bundle."`
	Backup     backupCmd     `cmd:"" help:"Back up everything that is kept into a folder."`
	Restore    restoreCmd    `cmd:"" help:"Put a backup into a new data folder."`
	Ledger     ledgerCmd     `cmd:"" help:"Move a ledger."`

	GitCredential gitCredentialCmd `cmd:"" name:"git-credential" help:"Tell git a sandbox's token, and renew it in time: a credential helper."`
}
