package kubectl

import (
	"bufio"
	"context"
	"crypto/ed25519"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nisse.io/nisse/api/v1alpha1"
	"nisse.io/nisse/controllers/gate/render"
	"nisse.io/nisse/controllers/gate/subject"
	"nisse.io/nisse/internal/dsse"
)

// mostWindow that is signed for, in seconds: as much as a gate may have.
const mostWindow = 86400

// approving is one use of the command.
type approving struct {
	keyFile string
	yes     bool
	wait    time.Duration
	now     func() time.Time
}

func approveCommand(c *cluster, now func() time.Time) *cobra.Command {
	a := approving{now: now}
	cmd := &cobra.Command{
		Use: "approve GATE", Short: "Approve a plan or a call, and sign it with a key of your own where that is demanded", Args: cobra.ExactArgs(1),
		Long: `Approve what a gate asks: a plan, or a single call. It shows the steps, asks, and makes an Approval by your own credentials.

Where a device's manifest demands a person's own signature, --key names the file with yours. The key signs what is shown here, and nothing else: the text is
rendered and the digest computed on this machine, from the plan itself, and nothing is signed when the gate says something else. The key does not leave this
machine, and without it nobody can have the device do it, not even who controls the cluster. Read all of it: the cluster chose what you are asked.`,
		Example: "  kubectl nisse approve wi-0123-rev-1 -n nisse --key lucas.key",
		RunE: func(cmd *cobra.Command, args []string) error {
			cl, namespace, err := c.connect()
			if err != nil {
				return err
			}
			return a.approve(cmd, cl, client.ObjectKey{Namespace: namespace, Name: args[0]})
		},
	}
	cmd.Flags().StringVar(&a.keyFile, "key", "", "`file` with your own key in PEM, for gates that take a signature")
	cmd.Flags().BoolVar(&a.yes, "yes", false, "do not ask whether it may be approved")
	cmd.Flags().DurationVar(&a.wait, "wait", 15*time.Second, "how long to wait until it counts; 0 does not wait")
	return cmd
}

func (a approving) approve(cmd *cobra.Command, cl client.WithWatch, key client.ObjectKey) error {
	ctx := cmd.Context()
	g, p, err := asks(ctx, cl, key)
	if err != nil {
		return err
	}
	out := cmd.OutOrStdout()
	text, err := shown(g, p, a.now())
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "%s\n\ndigest %s\n", text, g.Spec.Digest)
	var own signer
	if len(g.Spec.Signers) > 0 {
		if own, err = a.signer(g); err != nil {
			return err
		}
		fmt.Fprintf(out, "to be signed by %s with key %s, for gate %s, until %s\n", own.person, own.public(), g.UID, own.end.UTC().Format(time.RFC3339))
	} else if a.keyFile != "" {
		fmt.Fprintln(out, "This gate takes no signature, so nothing is signed.")
	}
	if !a.yes {
		fmt.Fprint(out, "Approve this? Type yes: ")
		answer, _ := bufio.NewReader(cmd.InOrStdin()).ReadString('\n') // no answer is no
		if strings.TrimSpace(answer) != "yes" {
			return errors.New("nothing was approved")
		}
	}
	signature, err := own.sign(g, p)
	if err != nil {
		return err
	}
	var me authenticationv1.SelfSubjectReview
	if err := cl.Create(ctx, &me); err != nil {
		return fmt.Errorf("ask the API server who you are: %w", err)
	}
	made := &v1alpha1.Approval{ObjectMeta: metav1.ObjectMeta{Namespace: g.Namespace, GenerateName: "approve-"}, Spec: v1alpha1.ApprovalSpec{
		Gate: v1alpha1.GateRef{Name: g.Name, UID: string(g.UID)}, Digest: g.Spec.Digest, Decision: v1alpha1.DecisionApprove, Approver: me.Status.UserInfo.Username,
		Channel: v1alpha1.Channel{Kind: v1alpha1.ChannelKubernetes}, Signature: signature,
	}}
	if err := cl.Create(ctx, made); err != nil {
		return err
	}
	fmt.Fprintf(out, "approval %s: %s approves rev-%d\n", made.Name, made.Spec.Approver, g.Spec.Revision)
	if a.wait == 0 {
		return nil
	}
	return a.counts(cmd, cl, g, made)
}

// asks reads an open gate and the plan that it is about, and checks that the one is about the other to the byte.
func asks(ctx context.Context, cl client.Client, key client.ObjectKey) (*v1alpha1.Gate, *v1alpha1.Plan, error) {
	g, p := &v1alpha1.Gate{}, &v1alpha1.Plan{}
	if err := get(ctx, cl, key, g); err != nil {
		return nil, nil, err
	}
	switch {
	case !g.LetsRun():
		return nil, nil, fmt.Errorf("gate %s asks how stopped work goes on; answer it in the room with continue, replan or abandon", g.Name)
	case !g.Open():
		return nil, nil, fmt.Errorf("gate %s is decided: %s", g.Name, g.Status.Message)
	}
	if err := get(ctx, cl, client.ObjectKey{Namespace: key.Namespace, Name: g.Spec.Subject.Name}, p); err != nil {
		return nil, nil, err
	}
	digest, err := subject.PlanDigest(p, g.Spec.WindowSeconds)
	if err != nil {
		return nil, nil, err
	}
	if string(p.UID) != g.Spec.Subject.UID || digest != g.Spec.Digest {
		return nil, nil, fmt.Errorf("gate %s asks about something else than plan %s says (%s, and it is %s): nothing was approved; somebody has changed one of them", g.Name, p.Name, g.Spec.Digest, digest)
	}
	return g, p, nil
}

// shown is what the gate asks, rendered from the plan.
func shown(g *v1alpha1.Gate, p *v1alpha1.Plan, now time.Time) (string, error) {
	s := g.Spec
	text, err := render.Plan(render.Gate{Agent: s.Agent, Title: s.Title, Approvers: s.Approvers, Required: s.Required, Flags: s.Flags, Rule: s.Rule, AskedAt: now, ExpiresAt: s.ExpiresAt.Time}, p.Spec)
	if err != nil {
		return "", fmt.Errorf("show plan %s: %w", p.Name, err)
	}
	if i := strings.LastIndex(text, "\nReply  "); i >= 0 { // how a room answers
		text = text[:i]
	}
	return text, nil
}

// signer is a person who signs, and until when it is good; the zero value signs nothing.
type signer struct {
	key    ed25519.PrivateKey
	person string
	end    time.Time
}

func (s signer) public() string { return dsse.EncodeKey(s.key.Public().(ed25519.PublicKey)) }

// signer by the key of the file, if it is one that the gate takes.
func (a approving) signer(g *v1alpha1.Gate) (signer, error) {
	var people []string
	for _, s := range g.Spec.Signers {
		people = append(people, s.Person)
	}
	if a.keyFile == "" {
		return signer{}, fmt.Errorf("gate %s takes the own signature of %s: --key names the file with the key", g.Name, strings.Join(people, " or "))
	}
	key, err := privateKey(a.keyFile)
	if err != nil {
		return signer{}, err
	}
	own := signer{key: key, end: a.now().Add(time.Duration(g.Spec.WindowSeconds) * time.Second)}
	i := slices.IndexFunc(g.Spec.Signers, func(s v1alpha1.GateSigner) bool { return slices.Contains(s.Keys, own.public()) })
	if i < 0 {
		return signer{}, fmt.Errorf("the key %s in %s is not one that gate %s takes; it takes those that the manifests name under keys.persons of %s", own.public(), a.keyFile, g.Name, strings.Join(people, " or "))
	}
	if g.Spec.WindowSeconds > mostWindow {
		return signer{}, fmt.Errorf("gate %s is for %d seconds, and nobody signs for more than %d", g.Name, g.Spec.WindowSeconds, mostWindow)
	}
	own.person = g.Spec.Signers[i].Person
	return own, nil
}

// sign what was shown.
func (s signer) sign(g *v1alpha1.Gate, p *v1alpha1.Plan) (string, error) {
	if s.key == nil {
		return "", nil
	}
	return subject.Statement(g, p, []string{s.person}, s.end).Consent(s.person, s.end.Unix()).Sign(s.key)
}

// counts waits until the manager has judged the Approval.
func (a approving) counts(cmd *cobra.Command, cl client.WithWatch, g *v1alpha1.Gate, made *v1alpha1.Approval) error {
	return judged(cmd.Context(), cl, made, a.wait, g, &v1alpha1.GateList{}, func(o client.Object) (bool, error) {
		now := o.(*v1alpha1.Gate)
		if !slices.ContainsFunc(now.Status.Decisions, func(d v1alpha1.GateDecision) bool { return d.Approval == made.Name }) {
			return false, nil
		}
		fmt.Fprintln(cmd.OutOrStdout(), now.Status.Message)
		return true, nil
	})
}
