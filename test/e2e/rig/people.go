package rig

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"testing"

	certv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	api "nisse.io/nisse/api/v1alpha1"
	"nisse.io/nisse/internal/testrig/person"
	"nisse.io/nisse/test/apitest"
)

// As is a client with a certificate of somebody's own, signed by the cluster for the username alone: no group, no impersonation.
func (r *Rig) As(t testing.TB, username string) client.Client {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{Subject: pkix.Name{CommonName: username}}, key)
	if err != nil {
		t.Fatal(err)
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	cfg := rest.AnonymousClientConfig(r.Config)
	cfg.CertData = r.sign(t, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der}))
	cfg.KeyData = pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private})
	c, err := client.New(cfg, client.Options{Scheme: apitest.Scheme()})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// Stranger is somebody with an account at the homeserver whom no agent knows, in the tests' room.
func (r *Rig) Stranger(t testing.TB, name string) *person.Person {
	t.Helper()
	env, err := os.ReadFile(filepath.Join(os.Getenv("NISSE_RUN"), "homeserver", "env"))
	if err != nil {
		t.Fatal(err)
	}
	m := regexp.MustCompile(`(?m)^HOMESERVER_REGISTRATION_SECRET=(.+)$`).FindSubmatch(env)
	if m == nil {
		t.Fatal("the homeserver's env has no registration secret")
	}
	a := person.Account{Homeserver: r.Fact("matrix-url"), Name: name, Password: "password-of-" + name}
	if err := person.Register(t.Context(), a, string(m[1]), false); err != nil {
		t.Fatal(err)
	}
	p, err := person.Login(t.Context(), a)
	if err != nil {
		t.Fatal(err)
	}
	if err := r.You.Invite(t.Context(), r.Room, p.UserID()); err != nil {
		t.Fatal(err)
	}
	if _, err := p.Join(t.Context(), r.Room.String()); err != nil {
		t.Fatal(err)
	}
	return p
}

// sign asks the cluster for a client certificate and approves the request, as an administrator does for a person.
func (r *Rig) sign(t testing.TB, request []byte) []byte {
	t.Helper()
	cs, err := kubernetes.NewForConfig(r.Config)
	if err != nil {
		t.Fatal(err)
	}
	requests := cs.CertificatesV1().CertificateSigningRequests()
	day := int32(86400)
	csr, err := requests.Create(t.Context(), &certv1.CertificateSigningRequest{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "nisse-e2e-"},
		Spec: certv1.CertificateSigningRequestSpec{Request: request, SignerName: certv1.KubeAPIServerClientSignerName, ExpirationSeconds: &day,
			Usages: []certv1.KeyUsage{certv1.UsageClientAuth}},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := requests.Delete(context.WithoutCancel(t.Context()), csr.Name, metav1.DeleteOptions{}); err != nil {
			t.Log(err)
		}
	})
	csr.Status.Conditions = append(csr.Status.Conditions, certv1.CertificateSigningRequestCondition{
		Type: certv1.CertificateApproved, Status: corev1.ConditionTrue, Reason: "EndToEndTest", Message: "a person of the tests"})
	if _, err := requests.UpdateApproval(t.Context(), csr.Name, csr, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	var certificate []byte
	r.Wait(t, "the certificate is signed", Patience, func(ctx context.Context) error {
		got, err := requests.Get(ctx, csr.Name, metav1.GetOptions{})
		if err == nil && len(got.Status.Certificate) == 0 {
			err = errors.New("not yet")
		}
		if err == nil {
			certificate = got.Status.Certificate
		}
		return err
	})
	return certificate
}

// Decision about a gate, to be made by kubectl; nothing but the approver's own name would pass admission.
func Decision(g *api.Gate, name, approver string) *api.Approval {
	return &api.Approval{ObjectMeta: metav1.ObjectMeta{Namespace: Namespace, Name: name}, Spec: api.ApprovalSpec{
		Gate: api.GateRef{Name: g.Name, UID: string(g.UID)}, Digest: g.Spec.Digest, Decision: api.DecisionApprove,
		Approver: approver, Channel: api.Channel{Kind: api.ChannelKubernetes}}}
}
