package kubectl

import (
	"bytes"
	"crypto/ed25519"
	"errors"
	"fmt"
	"io"
	"strconv"
	"time"

	"go.yaml.in/yaml/v3"
	"sigs.k8s.io/json"
	k8syaml "sigs.k8s.io/yaml"

	"nisse.io/nisse/api/v1alpha1"
	"nisse.io/nisse/internal/manifest"
	"nisse.io/nisse/internal/names"
)

// document of a file that holds a DeviceManifest. The node is what is written back, comments and all.
type document struct {
	name     string
	node     *yaml.Node
	manifest *manifest.Manifest
	envelope string
}

// documents of a file: the DeviceManifests in it, in lists too, and the nodes of everything.
func documents(text []byte) (nodes []*yaml.Node, all []*document, err error) {
	d := yaml.NewDecoder(bytes.NewReader(text))
	for {
		var n yaml.Node
		if err := d.Decode(&n); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return nil, nil, err
		}
		nodes = append(nodes, &n)
		if len(n.Content) == 0 {
			continue
		}
		objects := []*yaml.Node{n.Content[0]}
		if kind := field(n.Content[0], "kind"); kind != nil && kind.Value == "List" {
			if items := field(n.Content[0], "items"); items != nil {
				objects = items.Content
			}
		}
		for _, o := range objects {
			kind := field(o, "kind")
			if kind == nil || kind.Value != "DeviceManifest" {
				continue
			}
			m, err := read1(o)
			if err != nil {
				return nil, nil, err
			}
			all = append(all, m)
		}
	}
	if len(all) == 0 {
		return nil, nil, errors.New("there is no DeviceManifest in it")
	}
	return nodes, all, nil
}

// read1 object. Fields that the kind does not have are refused: they would be dropped by the API server and the signature would not hold.
func read1(o *yaml.Node) (*document, error) {
	text, err := yaml.Marshal(o)
	if err != nil {
		return nil, err
	}
	var m v1alpha1.DeviceManifest
	j, err := k8syaml.YAMLToJSONStrict(text)
	if err != nil {
		return nil, fmt.Errorf("line %d: %w", o.Line, err)
	}
	unknown, err := json.UnmarshalStrict(j, &m)
	if err = errors.Join(append(unknown, err)...); err != nil {
		return nil, fmt.Errorf("line %d: %w", o.Line, err)
	}
	if want := names.Manifest(m.Spec.Device, string(m.Spec.Privilege)); m.Name != want {
		return nil, fmt.Errorf("line %d: a DeviceManifest of device %q with privilege %s is named %s, not %q", o.Line, m.Spec.Device, m.Spec.Privilege, want, m.Name)
	}
	spec := m.Spec
	spec.Epoch = max(spec.Epoch, 1) // one that was never signed has none
	body, err := spec.Text()
	if err != nil {
		return nil, fmt.Errorf("%s: %w", m.Name, err)
	}
	parsed, err := manifest.Parse(body)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", m.Name, err)
	}
	return &document{name: m.Name, node: o, manifest: parsed, envelope: m.Spec.Signature}, nil
}

func signAll(text []byte, key ed25519.PrivateKey, now time.Time) ([]byte, []*document, error) {
	nodes, all, err := documents(text)
	if err != nil {
		return nil, nil, err
	}
	for _, d := range all {
		envelope, err := d.manifest.Sign(key, now)
		if err != nil {
			return nil, nil, fmt.Errorf("%s: %w", d.name, err)
		}
		spec := field(d.node, "spec")
		set(spec, "epoch", &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!int", Value: strconv.FormatInt(d.manifest.Epoch, 10)})
		set(spec, "signature", &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: envelope, Style: yaml.SingleQuotedStyle})
	}
	var out bytes.Buffer
	e := yaml.NewEncoder(&out)
	e.SetIndent(2)
	for _, n := range nodes {
		if err := e.Encode(n); err != nil {
			return nil, nil, err
		}
	}
	if err := e.Close(); err != nil {
		return nil, nil, err
	}
	return out.Bytes(), all, nil
}

// verifyAll says a line of each and fails if one is not in force.
func verifyAll(w io.Writer, text []byte, root ed25519.PublicKey, now time.Time) error {
	_, all, err := documents(text)
	if err != nil {
		return err
	}
	bad := 0
	for _, d := range all {
		if err := d.inForce(root, now); err != nil {
			bad++
			fmt.Fprintf(w, "%s: %s\n", d.name, err)
			continue
		}
		digest, err := d.manifest.Digest()
		if err != nil {
			return err
		}
		fmt.Fprintf(w, "%s: signed, epoch %d, until %s, %s\n", d.name, d.manifest.Epoch, d.manifest.ExpiresAt, digest)
	}
	if bad > 0 {
		return fmt.Errorf("%d of %d are not in force", bad, len(all))
	}
	return nil
}

func (d *document) inForce(root ed25519.PublicKey, now time.Time) error {
	if d.envelope == "" {
		return errors.New("unsigned; run kubectl nisse manifest sign")
	}
	if err := d.manifest.OpenAs(d.envelope, []ed25519.PublicKey{root}); err != nil {
		return err
	}
	end, err := d.manifest.Expiry()
	if err != nil {
		return err
	}
	if !now.Before(end) {
		return fmt.Errorf("expired at %s", d.manifest.ExpiresAt)
	}
	return nil
}

// field of a mapping.
func field(n *yaml.Node, name string) *yaml.Node {
	if n == nil || n.Kind != yaml.MappingNode {
		return nil
	}
	for i := 0; i+1 < len(n.Content); i += 2 {
		if n.Content[i].Value == name {
			return n.Content[i+1]
		}
	}
	return nil
}

// set a field of a mapping, at its end when it is new.
func set(n *yaml.Node, name string, value *yaml.Node) {
	for i := 0; i+1 < len(n.Content); i += 2 {
		if n.Content[i].Value == name {
			value.LineComment, value.HeadComment, value.FootComment = n.Content[i+1].LineComment, n.Content[i+1].HeadComment, n.Content[i+1].FootComment
			n.Content[i+1] = value
			return
		}
	}
	n.Content = append(n.Content, &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: name}, value)
}
