package canonical

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
)

// Strict reads JSON into out: no field that out does not have, and nothing after the value. That the text is canonical it does not tell.
func Strict(raw []byte, out any) error {
	d := json.NewDecoder(bytes.NewReader(raw))
	d.DisallowUnknownFields()
	if err := d.Decode(out); err != nil {
		return err
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return errors.New("data after the value")
	}
	return nil
}
