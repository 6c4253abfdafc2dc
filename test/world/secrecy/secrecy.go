// Package secrecy finds out whether anything secret of a site was told to anybody. It notes every secret that the
// site's clusters have held in Secrets, and every version of every other object; at the end each secret is looked for
// in those, in the logs of all programs and hosts, and in what is said on request: metrics, answers, the command line.
// It knows no program's ways.
package secrecy

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/tools/cache"

	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/ignition"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/controlplane"
)

// Watch is what was seen of a site's secrets, and where everything else that was seen is.
type Watch struct {
	dir string

	mu      sync.Mutex
	secrets map[string]string // secret → what it is
	users   map[string]string // the same of those that a user has put into MachineConfigs, whose readers may know them
	failure error
}

// Start watches every kind of object of clusters until ctx ends; what it sees is kept in files of dir, where the logs
// are too.
func Start(ctx context.Context, dir string, clusters ...*controlplane.ControlPlane) (*Watch, error) {
	w := &Watch{dir: dir, secrets: map[string]string{}, users: map[string]string{}}
	for _, cluster := range clusters {
		if err := w.follow(ctx, cluster); err != nil {
			return nil, fmt.Errorf("%s: %w", cluster.Name, err)
		}
	}
	return w, nil
}

func (w *Watch) follow(ctx context.Context, cluster *controlplane.ControlPlane) error {
	finder, err := discovery.NewDiscoveryClientForConfig(cluster.Config)
	if err != nil {
		return err
	}
	kinds, err := finder.ServerPreferredResources()
	if err != nil {
		return err
	}
	resources, err := discovery.GroupVersionResources(discovery.FilteredBy(discovery.SupportsAllVerbs{Verbs: []string{"list", "watch"}}, kinds))
	if err != nil {
		return err
	}
	objects, err := dynamic.NewForConfig(cluster.Config)
	if err != nil {
		return err
	}
	informers := dynamicinformer.NewDynamicSharedInformerFactory(objects, 0)
	for resource := range resources {
		if _, err := informers.ForResource(resource).Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
			AddFunc:    func(object any) { w.see(cluster.Name, object) },
			UpdateFunc: func(_, object any) { w.see(cluster.Name, object) },
		}); err != nil {
			return err
		}
	}
	informers.Start(ctx.Done())
	for resource, synced := range informers.WaitForCacheSync(ctx.Done()) {
		if !synced {
			return fmt.Errorf("%s can't be watched", resource)
		}
	}
	return nil
}

// see notes the secrets of a Secret, and everything of anything else.
func (w *Watch) see(cluster string, seen any) {
	object := seen.(*unstructured.Unstructured)
	if object.GetKind() != "Secret" {
		text, err := json.Marshal(object)
		file := "objects"
		if strings.HasPrefix(object.GetKind(), "MachineConfig") && object.GetKind() != "MachineConfigPool" {
			file = "machineconfigs"
		}
		w.note(err)
		w.Said(cluster+"-"+file, string(text))
		return
	}
	secret := &corev1.Secret{}
	w.note(runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, secret))
	name := cluster + " Secret " + secret.Namespace + "/" + secret.Name
	if pointer, err := ignition.ParsePointer(secret.Data["value"]); err == nil {
		w.Keep(name+": the pointer's token", pointer.Token)
	}
	w.Keep(name+": the secret half of the join credential", string(secret.Data["token-secret"]))
	w.Keep(name+": the token", string(secret.Data["token"]))
	if packed := secret.Data[bootstrapv1.OverlayKey]; len(packed) > 64 && secret.Labels[bootstrapv1.OverlayLabel] != "" {
		w.Keep(name+": an overlay", string(packed[len(packed)/2:][:32]))
	}
	for _, content := range secret.Data {
		for _, key := range keyData.FindAllStringSubmatch(string(content), -1) {
			if pem, err := base64.StdEncoding.DecodeString(key[1]); err == nil {
				w.Keep(name+": the key of a kubeconfig", string(pem))
			}
		}
	}
}

var keyData = regexp.MustCompile(`client-key-data: (\S+)`)

// Keep notes a secret that no Secret has, of Poolboot or of a user. An empty one is none.
func (w *Watch) Keep(what, secret string) { w.keep(w.secrets, what, secret) }

// KeepOfUser notes what a user has put into a MachineConfig.
func (w *Watch) KeepOfUser(what, secret string) { w.keep(w.users, what, secret) }

func (w *Watch) keep(in map[string]string, what, secret string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	// A key's first lines say what it is.
	if _, body, is := strings.Cut(secret, "KEY-----\n"); is {
		secret, _, _ = strings.Cut(body, "\n-----END")
		secret = secret[strings.Index(secret, "\n")+1:]
	}
	if secret != "" {
		in[secret] = what
	}
}

// Said notes what somebody was told, by who said it.
func (w *Watch) Said(who, text string) {
	file, err := os.OpenFile(filepath.Join(w.dir, "said-by-"+who+".log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err == nil {
		_, err = file.WriteString(text + "\n")
		_ = file.Close()
	}
	w.note(err)
}

func (w *Watch) note(err error) {
	if err != nil {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.failure = err
	}
}

// Findings is what Leaks has looked through.
type Findings struct {
	// Secrets is how many secrets were looked for.
	Secrets int
	// Files are the sizes in bytes of the files that they were looked for in, by path below the site's folder.
	Files map[string]int
	// Leaks say which secret is where.
	Leaks []string
}

// Leaks looks for every secret in every log of the folder, those of hosts included; in plain, in base64 wherever it
// starts, and of a key line by line.
func (w *Watch) Leaks() (Findings, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	findings := Findings{Secrets: len(w.secrets) + len(w.users), Files: map[string]int{}}
	all, poolboots := newNeedles(w.secrets, w.users), newNeedles(w.secrets)
	err := filepath.WalkDir(w.dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || filepath.Ext(path) != ".log" {
			return ignoreGone(err)
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return ignoreGone(err)
		}
		name, err := filepath.Rel(w.dir, path)
		findings.Files[name] = len(text)
		needles := all
		if strings.HasSuffix(path, "-machineconfigs.log") {
			needles = poolboots
		}
		for what, line := range needles.in(string(text)) {
			findings.Leaks = append(findings.Leaks, fmt.Sprintf("%s has %s: %s", name, what, line))
		}
		return err
	})
	if w.failure != nil {
		err = w.failure
	}
	return findings, err
}

// ignoreGone is for files of programs that still run.
func ignoreGone(err error) error {
	if os.IsNotExist(err) {
		return nil
	}
	return err
}
