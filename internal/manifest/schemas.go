package manifest

import (
	"maps"
	"slices"

	"nisse.io/nisse/internal/canonical"
)

// Schemas of the capabilities' arguments, in JSON Schema 2020-12. Nothing that is not named is accepted.
var Schemas = map[string]string{
	FSRead: `{"type":"object","additionalProperties":false,"required":["path"],"properties":{
		"path":{"type":"string","description":"absolute path of a file","maxLength":4096},
		"offset":{"type":"integer","minimum":0,"description":"first byte to read"},
		"limit":{"type":"integer","minimum":1,"description":"most bytes to read"}}}`,
	FSList: `{"type":"object","additionalProperties":false,"required":["path"],"properties":{
		"path":{"type":"string","description":"absolute path of a directory","maxLength":4096}}}`,
	FSStat: `{"type":"object","additionalProperties":false,"required":["path"],"properties":{
		"path":{"type":"string","description":"absolute path","maxLength":4096}}}`,
	FSWrite: `{"type":"object","additionalProperties":false,"required":["path","content"],"properties":{
		"path":{"type":"string","description":"absolute path of the file that is replaced as a whole","maxLength":4096},
		"content":{"type":"string","description":"the whole new content"},
		"encoding":{"type":"string","enum":["utf-8","base64"],"description":"of content; utf-8 when absent"}}}`,
	Exec: `{"type":"object","additionalProperties":false,"required":["argv"],"properties":{
		"argv":{"type":"array","minItems":1,"maxItems":64,"items":{"type":"string","maxLength":4096},"description":"program by absolute path and its arguments; no shell reads them"},
		"timeoutSeconds":{"type":"integer","minimum":1,"maximum":300,"description":"less than the device allows, if less is wanted"}}}`,
	GitStatus: `{"type":"object","additionalProperties":false,"required":["path"],"properties":{
		"path":{"type":"string","description":"absolute path of the top directory of a working tree","maxLength":4096}}}`,
	GitCommit: `{"type":"object","additionalProperties":false,"required":["path","files","message"],"properties":{
		"path":{"type":"string","description":"absolute path of the top directory of a working tree","maxLength":4096},
		"files":{"type":"array","minItems":1,"maxItems":500,"items":{"type":"string","minLength":1,"maxLength":4096},"description":"exactly the files to commit, relative to path; no directories, no patterns. A file that is gone is committed as deleted"},
		"message":{"type":"string","minLength":1,"maxLength":16384,"description":"the whole commit message"},
		"author":{"type":"string","maxLength":384,"description":"Name <mail@host>; the operator's own when absent"}}}`,
	GitClone: `{"type":"object","additionalProperties":false,"required":["url","path"],"properties":{
		"url":{"type":"string","maxLength":1024,"description":"https://, ssh:// or file:// URL, or user@host:path, without a password"},
		"path":{"type":"string","description":"absolute path of the directory that is made; it must not exist","maxLength":4096},
		"branch":{"type":"string","maxLength":200,"description":"branch to check out; the remote's own choice when absent"},
		"depth":{"type":"integer","minimum":1,"maximum":1000000,"description":"commits of history; all when absent"},
		"timeoutSeconds":{"type":"integer","minimum":1,"maximum":300,"description":"30 when absent; never more than the device allows"}}}`,
	GitPush: `{"type":"object","additionalProperties":false,"required":["path","url","branch"],"properties":{
		"path":{"type":"string","description":"absolute path of the top directory of a working tree","maxLength":4096},
		"url":{"type":"string","maxLength":1024,"description":"URL of the remote, as the device's manifest lists it; names of remotes are not taken"},
		"branch":{"type":"string","maxLength":200,"description":"branch that is pushed to the branch of the same name; only forwards, never forced"},
		"commit":{"type":"string","pattern":"^([0-9a-f]{40}|[0-9a-f]{64})$","description":"whole ID of the commit that the remote's branch shall be; whatever the local branch is then when absent"},
		"timeoutSeconds":{"type":"integer","minimum":1,"maximum":300,"description":"30 when absent; never more than the device allows"}}}`,
	PkgSearch: `{"type":"object","additionalProperties":false,"required":["query"],"properties":{
		"query":{"type":"string","minLength":1,"maxLength":128,"description":"part of a package's name"}}}`,
	PkgInstall: `{"type":"object","additionalProperties":false,"required":["names"],"properties":{
		"names":{"type":"array","minItems":1,"maxItems":50,"uniqueItems":true,"items":{"type":"string","minLength":1,"maxLength":128},"description":"exact names of packages, without version, release, architecture or path"},
		"timeoutSeconds":{"type":"integer","minimum":1,"maximum":300,"description":"all that the device allows when absent"}}}`,
	ProcList: `{"type":"object","additionalProperties":false,"properties":{
		"name":{"type":"string","maxLength":15,"description":"name of the program as the kernel keeps it (15 bytes); all when absent"}}}`,
	ProcKill: `{"type":"object","additionalProperties":false,"required":["pid","start"],"properties":{
		"pid":{"type":"integer","minimum":2,"maximum":4194304},
		"start":{"type":"string","pattern":"^[0-9]{1,18}@[0-9a-f]{8}$","description":"start of the process, copied from proc.list, so that no other process of that number is met"},
		"signal":{"type":"string","enum":["TERM","INT","HUP","QUIT","USR1","USR2","KILL","STOP","CONT"],"description":"TERM when absent"}}}`,
	DockerList: `{"type":"object","additionalProperties":false,"properties":{}}`,
	DockerLogs: `{"type":"object","additionalProperties":false,"required":["container"],"properties":{
		"container":{"type":"string","minLength":1,"maxLength":128,"description":"name of the container"},
		"tail":{"type":"integer","minimum":1,"maximum":10000,"description":"lines from the end; 200 when absent"}}}`,
	DockerExec: `{"type":"object","additionalProperties":false,"required":["container","argv"],"properties":{
		"container":{"type":"string","minLength":1,"maxLength":128,"description":"name of the container"},
		"id":{"type":"string","pattern":"^[0-9a-f]{64}$","description":"the container's ID from docker.container.list, when no successor of the same name will do"},
		"argv":{"type":"array","minItems":1,"maxItems":64,"items":{"type":"string","maxLength":4096},"description":"program by its absolute path in the container and its arguments; no shell reads them"},
		"timeoutSeconds":{"type":"integer","minimum":1,"maximum":300,"description":"less than the device allows, if less is wanted"}}}`,
	DisplayCapture: `{"type":"object","additionalProperties":false,"properties":{}}`,
	ClipboardRead:  `{"type":"object","additionalProperties":false,"properties":{}}`,
	ClipboardWrite: `{"type":"object","additionalProperties":false,"required":["content"],"properties":{
		"content":{"type":"string","minLength":1,"maxLength":131072,"description":"the text that the clipboard shall hold"}}}`,
}

// Descriptions of the capabilities, for models and people.
var Descriptions = map[string]string{
	FSRead:         "Read a file of a device. Binary content comes back as base64.",
	FSList:         "List a directory of a device: names, kinds, sizes and times.",
	FSStat:         "Tell kind, size, mode, owner and times of a path of a device.",
	FSWrite:        "Replace a file of a device as a whole. Needs an approved plan that has this very call as its next step.",
	Exec:           "Run one listed command line on a device, without a shell. Command lines that change the machine need an approved plan.",
	GitStatus:      "Tell branch, commit and changed files of a git working tree of a device.",
	GitCommit:      "Commit exactly the named files of a git working tree of a device, without hooks. Needs an approved plan.",
	GitClone:       "Clone a git repository to a device, without submodules. Needs an approved plan.",
	GitPush:        "Push a branch from a device to the branch of the same name of a listed URL; only forwards, without hooks. Needs an approved plan.",
	PkgSearch:      "Search the package manager of a device (apt, dnf or pacman) for packages by a part of their names.",
	PkgInstall:     "Install packages on a device by exact names, with what they depend on. Nothing is ever removed. Needs an approved plan.",
	ProcList:       "List processes of a device: number, start, owner, name, memory and time; command lines only of the processes that the device may touch.",
	ProcKill:       "Send a signal to one process of a device, named by number and start from proc_list. Needs an approved plan.",
	DockerList:     "List the Docker containers of a device that its manifest names.",
	DockerLogs:     "Read the last lines that a Docker container of a device wrote.",
	DockerExec:     "Run one listed command line in a Docker container of a device, without a shell or a terminal. Needs an approved plan.",
	DisplayCapture: "Take a picture of the operator's screen on a device, as a PNG in base64, made smaller until it fits.",
	ClipboardRead:  "Read the text in the operator's clipboard on a device.",
	ClipboardWrite: "Replace the operator's clipboard on a device with a text. Needs an approved plan.",
}

// Capabilities known, sorted.
func Capabilities() []string { return slices.Sorted(maps.Keys(Schemas)) }

// Resolves tells whether the arguments of a capability name a program on the device, of which the device can tell before it runs which
// bytes that would be. What runs inside a container is not among them, nor is a program of the device's own choice such as git.
func Resolves(capability string) bool { return capability == Exec }

// SchemaDigest binds plans to the schemas that their arguments were checked with.
func SchemaDigest() string {
	var all []string
	for _, c := range Capabilities() {
		b, err := canonical.JSON([]byte(Schemas[c]))
		if err != nil {
			panic("manifest: schema of " + c + ": " + err.Error()) // a constant of this file; a test calls this
		}
		all = append(all, c, string(b))
	}
	d, err := canonical.Digest(all)
	if err != nil {
		panic("manifest: " + err.Error())
	}
	return d
}
