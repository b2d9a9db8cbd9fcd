package capability

import (
	"bytes"
	"encoding/base64"
	"unicode/utf8"
)

// Encodings of content in results.
const (
	UTF8   = "utf-8"
	Base64 = "base64"
)

// text puts at most keep bytes of content into a JSON string: as it is when it is text, in base64 otherwise. A rune that was cut, by
// keep or because more follows content, is left out. used is how many bytes s stands for.
func text(content []byte, keep int, more bool) (s, encoding string, used int) {
	cut := content[:min(keep, len(content))]
	more = more || len(cut) < len(content)
	if utf8.Valid(cut) && !bytes.ContainsRune(cut, 0) {
		return string(cut), UTF8, len(cut)
	}
	for end := len(cut) - 1; more && end > 0 && end > len(cut)-utf8.UTFMax; end-- {
		if utf8.Valid(cut[:end]) && !utf8.FullRune(cut[end:]) && !bytes.ContainsRune(cut[:end], 0) {
			return string(cut[:end]), UTF8, end
		}
	}
	return base64.StdEncoding.EncodeToString(cut), Base64, len(cut)
}
