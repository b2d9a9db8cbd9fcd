// Package docker speaks with the Docker Engine of this machine over its socket, about the few things that a device does: listing
// containers, reading their logs, and running a command in one. No program is run for it, and no other socket is spoken with.
package docker

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
	"time"

	"nisse.io/nisse/hosttools/program"
	"nisse.io/nisse/internal/sanitize"
)

// Socket of the Engine where nothing else is said.
const Socket = "/var/run/docker.sock"

// Engine behind a socket.
type Engine struct {
	client *http.Client
	socket string
}

// Open the Engine that DOCKER_HOST of the environment names, or the usual one.
func Open(env []string) (Engine, error) {
	socket := Socket
	if host := program.Variable(env, "DOCKER_HOST"); host != "" {
		path, ok := strings.CutPrefix(host, "unix://")
		if !ok || !strings.HasPrefix(path, "/") {
			return Engine{}, fmt.Errorf("%w: DOCKER_HOST is %q, and only unix:///path is spoken with", program.ErrMissing, host)
		}
		socket = path
	}
	if info, err := os.Stat(socket); err != nil || info.Mode()&os.ModeSocket == 0 {
		return Engine{}, fmt.Errorf("%w: no Docker Engine listens at %s; start it, or name its socket as DOCKER_HOST in the manifest's environment", program.ErrMissing, socket)
	}
	dial := func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", socket)
	}
	return Engine{client: &http.Client{Transport: &http.Transport{DialContext: dial, DisableKeepAlives: true, Proxy: nil}}, socket: socket}, nil
}

// Probe tells which Engine this machine has.
func Probe(ctx context.Context, env []string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	e, err := Open(env)
	if err != nil {
		return "", err
	}
	var v struct{ Version string }
	if err := e.get(ctx, "/version", &v); err != nil {
		return "", err
	}
	return fmt.Sprintf("Docker Engine %s at %s", v.Version, e.socket), nil
}

// Container of the Engine.
type Container struct {
	ID, Name, Image string
	// State such as running or exited, and Status in words.
	State, Status string
	// Created in Unix seconds.
	Created int64
}

// most bytes of an answer that is not a stream.
const most = 8 << 20

// Containers, running or not, sorted as the Engine does: the newest first.
func (e Engine) Containers(ctx context.Context) ([]Container, error) {
	var all []struct {
		ID                   string `json:"Id"`
		Names                []string
		Image, State, Status string
		Created              int64
	}
	if err := e.get(ctx, "/containers/json?all=true", &all); err != nil {
		return nil, err
	}
	var found []Container
	for _, c := range all {
		// Links give a container further names, with more slashes; its own has one.
		for _, n := range c.Names {
			if name, ok := strings.CutPrefix(n, "/"); ok && !strings.Contains(name, "/") {
				found = append(found, Container{ID: c.ID, Name: name, Image: c.Image, State: c.State, Status: c.Status, Created: c.Created})
				break
			}
		}
	}
	return found, nil
}

// inspected container.
type inspected struct {
	id      string
	tty     bool
	running bool
}

// find the container of exactly this name. The Engine takes an ID, or the beginning of one, for a name, so that a name may lead to
// another container: what it found says itself what it is called. id is the container that it must be, when it is not empty.
func (e Engine) find(ctx context.Context, name, id string) (inspected, error) {
	var c struct {
		ID     string `json:"Id"`
		Name   string
		Config struct{ Tty bool }
		State  struct{ Running bool }
	}
	if err := e.get(ctx, "/containers/"+url.PathEscape(name)+"/json", &c); err != nil {
		return inspected{}, err
	}
	if c.Name != "/"+name || !isID(c.ID) {
		return inspected{}, fmt.Errorf("%w: no container is called %s; the Engine found %s", program.ErrRefused, name, sanitize.Quote(c.Name))
	}
	if id != "" && c.ID != id {
		return inspected{}, fmt.Errorf("%w: container %s is another one by now, %s; list containers again", program.ErrRefused, name, c.ID)
	}
	return inspected{id: c.ID, tty: c.Config.Tty, running: c.State.Running}, nil
}

func isID(s string) bool {
	return len(s) == 64 && strings.Trim(s, "0123456789abcdef") == ""
}

// get JSON.
func (e Engine) get(ctx context.Context, path string, out any) error {
	return e.ask(ctx, http.MethodGet, path, nil, out)
}

// ask for JSON.
func (e Engine) ask(ctx context.Context, method, path string, in, out any) error {
	r, err := e.do(ctx, method, path, in)
	if err != nil {
		return err
	}
	defer r.Body.Close()
	b, err := io.ReadAll(io.LimitReader(r.Body, most+1))
	if err != nil {
		return fmt.Errorf("docker: %w", err)
	}
	if len(b) > most {
		return fmt.Errorf("docker: the answer is longer than %d bytes", most)
	}
	if err := json.Unmarshal(b, out); err != nil {
		return fmt.Errorf("docker: the answer is not understood: %w", err)
	}
	return nil
}

// answered is what the Engine says when it does not do what it was asked.
type answered struct{ words string }

func (a *answered) Error() string { return "docker: " + a.words }

// do a request. What is not a success is an error that tells the Engine's own words.
func (e Engine) do(ctx context.Context, method, path string, in any) (*http.Response, error) {
	var body io.Reader = http.NoBody
	if in != nil {
		b, err := json.Marshal(in)
		if err != nil {
			return nil, err
		}
		body = bytes.NewReader(b)
	}
	q, err := http.NewRequestWithContext(ctx, method, "http://docker"+path, body)
	if err != nil {
		return nil, err
	}
	if in != nil {
		q.Header.Set("Content-Type", "application/json")
	}
	r, err := e.client.Do(q)
	if err != nil {
		var denied *net.OpError
		if errors.As(err, &denied) && errors.Is(err, os.ErrPermission) {
			return nil, fmt.Errorf("%w: %s may not be used by this device's user; give it the group that may", program.ErrMissing, e.socket)
		}
		return nil, fmt.Errorf("docker: %w", err)
	}
	if r.StatusCode/100 == 2 {
		return r, nil
	}
	defer r.Body.Close()
	var said struct{ Message string }
	b, _ := io.ReadAll(io.LimitReader(r.Body, 64<<10))
	if json.Unmarshal(b, &said) != nil || said.Message == "" {
		said.Message = "status " + strconv.Itoa(r.StatusCode)
	}
	err = &answered{sanitize.Line(said.Message, 500)}
	if r.StatusCode == http.StatusNotFound || r.StatusCode == http.StatusConflict {
		return nil, fmt.Errorf("%w: %w", program.ErrRefused, err)
	}
	return nil, err
}
