import com.google.gson.Gson;
import java.io.BufferedReader;
import java.io.File;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.stream.Collectors;
import org.eclipse.jgit.api.Git;
import org.eclipse.jgit.lib.PersonIdent;
import org.eclipse.jgit.lib.Ref;
import org.eclipse.jgit.transport.CredentialsProvider;
import org.eclipse.jgit.transport.PushResult;
import org.eclipse.jgit.transport.RefSpec;
import org.eclipse.jgit.transport.RemoteRefUpdate;
import org.eclipse.jgit.transport.URIish;
import org.eclipse.jgit.transport.UsernamePasswordCredentialsProvider;

/**
 * JGit as a client, driven by the tests: one request a line on standard input, one
 * answer a line on standard output, both JSON. What went wrong is the answer's
 * "error"; the process ends with its input.
 */
public final class JGitClient {
	/** One request; what an operation does not need is null. */
	private static final class Request {
		String url, dir, path, text, name, message;
		int depth;
		String[] specs;
	}

	private static final PersonIdent ADA = new PersonIdent("Ada", "ada@example.com");

	public static void main(String[] args) throws Exception {
		Gson gson = new Gson();
		BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
		for (String line = in.readLine(); line != null; line = in.readLine()) {
			Map<String, Object> answer = new HashMap<>();
			try {
				String operation = (String) gson.fromJson(line, Map.class).get("do");
				run(operation, gson.fromJson(line, Request.class), answer);
			} catch (Exception e) {
				answer.put("error", String.valueOf(e));
			}
			System.out.println(gson.toJson(answer));
		}
	}

	private static void run(String operation, Request r, Map<String, Object> answer) throws Exception {
		if (operation.equals("refs")) {
			answer.put("refs", refs(r));
			return;
		}
		if (operation.equals("clone")) {
			if (r.depth > 0) {
				throw new UnsupportedOperationException("this JGit knows no shallow clones");
			}
			Git.cloneRepository().setURI(r.url).setDirectory(new File(r.dir)).setCredentialsProvider(credentials(r.url)).call().close();
			return;
		}
		try (Git git = Git.open(new File(r.dir))) {
			switch (operation) {
				case "fetch" -> git.fetch().setCredentialsProvider(credentials(origin(git))).call();
				case "commit" -> answer.put("oid", commit(git, r));
				case "tag" -> git.tag().setName(r.name).setMessage(r.message.isEmpty() ? null : r.message)
						.setAnnotated(!r.message.isEmpty()).setTagger(r.message.isEmpty() ? null : ADA).call();
				case "push" -> push(git, r);
				default -> throw new IllegalArgumentException("unknown operation " + operation);
			}
		}
	}

	/** What stands before the host of a URL; this JGit does not look there by itself. */
	private static CredentialsProvider credentials(String url) throws Exception {
		URIish uri = new URIish(url);
		return new UsernamePasswordCredentialsProvider(uri.getUser(), uri.getPass());
	}

	private static String origin(Git git) {
		return git.getRepository().getConfig().getString("remote", "origin", "url");
	}

	private static Map<String, String> refs(Request r) throws Exception {
		Map<String, String> found = new HashMap<>();
		for (Ref ref : Git.lsRemoteRepository().setRemote(r.url).setCredentialsProvider(credentials(r.url)).call()) {
			found.put(ref.getName(), ref.getObjectId().name());
		}
		return found;
	}

	private static String commit(Git git, Request r) throws Exception {
		Files.writeString(new File(r.dir, r.path).toPath(), r.text);
		git.add().addFilepattern(r.path).call();
		return git.commit().setMessage("work on " + r.path + "\n").setAuthor(ADA).setCommitter(ADA).call().name();
	}

	private static void push(Git git, Request r) throws Exception {
		List<RefSpec> specs = Arrays.stream(r.specs).map(RefSpec::new).collect(Collectors.toList());
		for (PushResult result : git.push().setRefSpecs(specs).setCredentialsProvider(credentials(origin(git))).call()) {
			for (RemoteRefUpdate update : result.getRemoteUpdates()) {
				if (update.getStatus() != RemoteRefUpdate.Status.OK && update.getStatus() != RemoteRefUpdate.Status.UP_TO_DATE) {
					throw new IllegalStateException(
							update.getRemoteName() + ": " + update.getStatus() + " " + update.getMessage());
				}
			}
		}
	}
}
