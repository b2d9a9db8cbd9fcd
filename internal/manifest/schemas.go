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
}

// Descriptions of the capabilities, for models and people.
var Descriptions = map[string]string{
	FSRead:  "Read a file of a device. Binary content comes back as base64.",
	FSList:  "List a directory of a device: names, kinds, sizes and times.",
	FSStat:  "Tell kind, size, mode, owner and times of a path of a device.",
	FSWrite: "Replace a file of a device as a whole. Needs an approved plan that has this very call as its next step.",
	Exec:    "Run one listed command line on a device, without a shell. Command lines that change the machine need an approved plan.",
}

// Capabilities known, sorted.
func Capabilities() []string { return slices.Sorted(maps.Keys(Schemas)) }

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
